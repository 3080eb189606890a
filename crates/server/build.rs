//! Makes the messages and services of MACP, from the files that `macp-proto` ships, and of `handover.v1`. `protox`
//! reads them, so that no `protoc` is needed.

use std::path::PathBuf;

const PROTOS: [&str; 5] = [
    "macp/v1/core.proto",
    "macp/v1/envelope.proto",
    "macp/modes/task/v1/task.proto",
    "macp/modes/handoff/v1/handoff.proto",
    "handover/v1/handover.proto",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let own = PathBuf::from("proto");
    let files = protox::compile(PROTOS, [macp_proto::proto_dir(), own.clone()])?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("descriptors.bin"), prost::Message::encode_to_vec(&files))?;
    tonic_prost_build::configure().build_client(true).build_server(true).compile_fds(files)?;
    // cargo listens for this on standard output; there is no other way to tell it.
    #[allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]
    {
        println!("cargo::rerun-if-changed={}", own.display());
    }
    Ok(())
}
