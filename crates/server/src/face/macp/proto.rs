//! The messages of MACP and of our own service, made by the build script.

#![allow(missing_docs, rustdoc::all, clippy::all, clippy::unwrap_used, reason = "generated")]

/// The core, the service and the policies.
pub mod v1 {
    tonic::include_proto!("macp.v1");
}

/// Task Mode.
pub mod task {
    tonic::include_proto!("macp.modes.task.v1");
}

/// Handoff Mode.
pub mod handoff {
    tonic::include_proto!("macp.modes.handoff.v1");
}

/// Our own service beside MACP's.
pub mod handover {
    tonic::include_proto!("handover.v1");
}

/// What all of it looks like, for reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
