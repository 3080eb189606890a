//! The codes that are not the kernel's: those of the protocols, of HTTP, of JSON-RPC, of the gate and of the store.

use super::Grpc;

/// A code that is not the kernel's, and what it is called on every wire. A wire on which it is never sent is empty.
#[derive(Debug, PartialEq, Eq)]
pub struct Own {
    /// The code.
    pub code: &'static str,
    /// MACP's code: MACP's registry is coarser than our codes.
    pub macp: Option<&'static str>,
    /// gRPC's status. Several where it depends on the call.
    pub grpc: &'static [Grpc],
    /// HTTP's status, where it is not 200.
    pub http: &'static [u16],
    /// JSON-RPC's error code.
    pub json_rpc: &'static [i32],
    /// Whether the same request may succeed later.
    pub retry: Retry,
}

/// Whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may.
    Yes,
    /// It will fail again until something else changes.
    No,
    /// The code is a general one: the details name one that says.
    Depends,
}

macro_rules! own {
    ($($name:ident: macp $macp:expr, grpc $grpc:expr, http $http:expr, json_rpc $json_rpc:expr, retry $retry:ident;)+) => {
        $(
            #[doc = concat!("`", stringify!($name), "`: see its page in `docs/errors`.")]
            pub const $name: Own = Own {
                code: stringify!($name),
                macp: $macp,
                grpc: &$grpc,
                http: &$http,
                json_rpc: &$json_rpc,
                retry: Retry::$retry,
            };
        )+

        /// Every code that is not the kernel's.
        pub const ALL: &[&Own] = &[$(&$name),+];
    };
}

own! {
    // MACP's registry, as far as it is not in the kernel's words.
    AGENT_NOT_FOUND: macp Some("AGENT_NOT_FOUND"), grpc [Grpc::NotFound], http [], json_rpc [-32602], retry No;
    DO_NOT_DISTURB: macp Some("FORBIDDEN"), grpc [Grpc::FailedPrecondition], http [409], json_rpc [-32602], retry No;
    FORBIDDEN: macp Some("FORBIDDEN"), grpc [Grpc::PermissionDenied], http [403], json_rpc [-32602], retry No;
    NOT_ADMINISTRATOR: macp Some("FORBIDDEN"), grpc [Grpc::PermissionDenied], http [403], json_rpc [-32602], retry No;
    NOT_ALLOWED: macp Some("FORBIDDEN"), grpc [Grpc::PermissionDenied], http [403], json_rpc [-32602], retry No;
    INTERNAL_ERROR: macp Some("INTERNAL_ERROR"), grpc [Grpc::Unavailable, Grpc::DataLoss], http [503, 500], json_rpc [-32603], retry Depends;
    INVALID_ENVELOPE: macp Some("INVALID_ENVELOPE"), grpc [Grpc::InvalidArgument], http [400], json_rpc [-32602], retry No;
    INVALID_POLICY_DEFINITION: macp Some("INVALID_POLICY_DEFINITION"), grpc [Grpc::InvalidArgument], http [400], json_rpc [-32602], retry No;
    INVALID_SESSION_ID: macp Some("INVALID_SESSION_ID"), grpc [Grpc::InvalidArgument], http [], json_rpc [], retry No;
    MODE_NOT_SUPPORTED: macp Some("MODE_NOT_SUPPORTED"), grpc [Grpc::InvalidArgument], http [], json_rpc [], retry No;
    POLICY_DENIED: macp Some("POLICY_DENIED"), grpc [Grpc::PermissionDenied], http [403], json_rpc [-32602], retry No;
    MEMORY_BUDGET_SPENT: macp Some("RATE_LIMITED"), grpc [Grpc::ResourceExhausted], http [429], json_rpc [-32603], retry Yes;
    RATE_LIMITED: macp Some("RATE_LIMITED"), grpc [Grpc::ResourceExhausted], http [429], json_rpc [-32603], retry Yes;
    SESSION_ALREADY_EXISTS: macp Some("SESSION_ALREADY_EXISTS"), grpc [Grpc::AlreadyExists], http [409], json_rpc [-32602], retry No;
    SESSION_NOT_OPEN: macp Some("SESSION_NOT_OPEN"), grpc [Grpc::FailedPrecondition], http [409], json_rpc [-32602], retry No;
    STORAGE_BUDGET_SPENT: macp Some("RATE_LIMITED"), grpc [Grpc::ResourceExhausted], http [429], json_rpc [-32603], retry Yes;
    STREAM_LAGGED: macp Some("STREAM_LAGGED"), grpc [Grpc::ResourceExhausted], http [], json_rpc [], retry Yes;
    UNAUTHENTICATED: macp Some("UNAUTHENTICATED"), grpc [Grpc::Unauthenticated], http [401], json_rpc [-32602], retry No;
    UNKNOWN_POLICY_VERSION: macp Some("UNKNOWN_POLICY_VERSION"), grpc [Grpc::NotFound], http [404], json_rpc [-32602], retry No;
    UNSUPPORTED_PROTOCOL_VERSION: macp Some("UNSUPPORTED_PROTOCOL_VERSION"), grpc [Grpc::InvalidArgument], http [400], json_rpc [-32022], retry No;

    // Checks of values against schemas.
    CHECK_TOO_COSTLY: macp Some("INVALID_ENVELOPE"), grpc [Grpc::InvalidArgument], http [400], json_rpc [-32602], retry No;
    CHECKS_BUSY: macp Some("RATE_LIMITED"), grpc [Grpc::ResourceExhausted], http [429], json_rpc [-32603], retry Yes;

    // HTTP, before a request reaches a face.
    BACKUP_RUNNING: macp None, grpc [], http [409], json_rpc [], retry Yes;
    HOST_INVALID: macp None, grpc [], http [400], json_rpc [], retry No;
    HOST_REFUSED: macp None, grpc [], http [421], json_rpc [], retry No;
    METHOD_NOT_ALLOWED: macp None, grpc [], http [405], json_rpc [], retry No;
    NOT_FOUND: macp None, grpc [], http [404], json_rpc [], retry No;
    ORIGIN_REFUSED: macp None, grpc [], http [403], json_rpc [], retry No;
    REQUEST_TIMEOUT: macp Some("REQUEST_TIMEOUT"), grpc [Grpc::DeadlineExceeded], http [408], json_rpc [], retry Yes;
    TIMEOUT: macp None, grpc [], http [503], json_rpc [], retry Yes;
    TOO_MANY_CONNECTIONS: macp None, grpc [], http [503], json_rpc [], retry Yes;
    UNSUPPORTED_MEDIA_TYPE: macp None, grpc [], http [415], json_rpc [], retry No;

    // JSON-RPC and MCP.
    HEADER_MISMATCH: macp None, grpc [], http [400], json_rpc [-32020], retry No;
    INVALID_PARAMS: macp None, grpc [], http [400], json_rpc [-32602], retry No;
    INVALID_REQUEST: macp None, grpc [], http [400], json_rpc [-32600], retry No;
    METHOD_NOT_FOUND: macp None, grpc [], http [404], json_rpc [-32601], retry No;
    MISSING_CAPABILITY: macp None, grpc [], http [400], json_rpc [-32021], retry No;
    PARSE_ERROR: macp None, grpc [], http [400], json_rpc [-32700], retry No;
    RESOURCE_NOT_FOUND: macp None, grpc [], http [], json_rpc [-32602, -32002], retry No;
    SERVER_UNREACHABLE: macp None, grpc [], http [], json_rpc [-32603], retry Yes;
    TASK_EXPIRED: macp None, grpc [], http [], json_rpc [-32603], retry No;

    // Faults: the machine underneath failed.
    LOG_UNREADABLE: macp Some("INTERNAL_ERROR"), grpc [Grpc::DataLoss], http [500], json_rpc [-32603], retry No;
    STOPPING: macp Some("INTERNAL_ERROR"), grpc [Grpc::Unavailable], http [503], json_rpc [-32603], retry Yes;
    STORE_FULL: macp Some("INTERNAL_ERROR"), grpc [Grpc::Unavailable], http [503], json_rpc [-32603], retry Yes;
    STORE_UNAVAILABLE: macp Some("INTERNAL_ERROR"), grpc [Grpc::Unavailable], http [503], json_rpc [-32603], retry Yes;
}

/// The kernel's `PAYLOAD_TOO_LARGE`, where a request is refused before the kernel sees it.
pub const PAYLOAD_TOO_LARGE: Own = Own {
    code: "PAYLOAD_TOO_LARGE",
    macp: Some("PAYLOAD_TOO_LARGE"),
    grpc: &[Grpc::ResourceExhausted],
    http: &[413],
    json_rpc: &[-32602],
    retry: Retry::No,
};
