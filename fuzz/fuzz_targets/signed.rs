#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    handover_fuzz::signed::signed(bytes);
});
