//! How a no looks on MACP: inside an `Ack`, inline on a stream, or as a gRPC status.

use handover_kernel::Refusal;
use prost::bytes::Bytes;
use serde_json::{Value, json};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Code, Status};

use super::proto::v1::{Ack, MacpError, SessionState};
use crate::http::line::note;
use handover_desk::codes::{self, own};
use handover_desk::identity::Unauthenticated;
use handover_desk::limit::Limited;
use handover_desk::{Denied, No};

/// A no, in MACP's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The code of MACP's registry.
    pub code: &'static str,
    /// gRPC's status, where it is not inside an `Ack`.
    pub grpc: Code,
    /// What was expected and what was found.
    pub message: String,
    /// More of it, as JSON.
    pub details: String,
    /// When to try again, where time helps.
    pub retry_after_ms: Option<u64>,
}

impl Refused {
    /// Something on the wire is not as it should be.
    pub fn invalid(message: impl Into<String>) -> Refused {
        Refused::new("INVALID_ENVELOPE", Code::InvalidArgument, message)
    }

    /// A no with this code, which must be one of the table's, with a status that the table has for it.
    pub fn new(code: &'static str, grpc: Code, message: impl Into<String>) -> Refused {
        debug_assert!(
            own::ALL
                .iter()
                .any(|own| own.code == code && own.grpc.iter().any(|one| *one as i32 == grpc as i32)),
            "{code} with {grpc:?} is not in the table of codes"
        );
        Refused {
            code,
            grpc,
            message: message.into(),
            details: details(code, json!({})),
            retry_after_ms: None,
        }
    }

    /// A handoff is settled, and its task was not handed on because of this.
    pub fn not_moved(code: &str) -> Refused {
        let message = format!("the handoff is settled, but its task was not handed on: {code}");
        let refused = Refused::new("SESSION_NOT_OPEN", Code::FailedPrecondition, message);
        Refused { details: details(code, json!({})), ..refused }
    }

    /// As an error message.
    pub fn error(&self, session_id: &str, message_id: &str) -> MacpError {
        note("code", self.code);
        MacpError {
            code: self.code.to_owned(),
            message: self.message.clone(),
            session_id: session_id.to_owned(),
            message_id: message_id.to_owned(),
            details: self.details.clone().into_bytes(),
        }
    }

    /// As an answer: to `Send` every refusal is one, authentication included.
    pub fn ack(&self, session_id: &str, message_id: &str) -> Ack {
        Ack {
            ok: false,
            duplicate: false,
            message_id: message_id.to_owned(),
            session_id: session_id.to_owned(),
            accepted_at_unix_ms: 0,
            session_state: SessionState::Unspecified.into(),
            error: Some(self.error(session_id, message_id)),
        }
    }

    /// As a gRPC status, with the code in a trailer.
    pub fn status(&self) -> Status {
        note("code", self.code);
        let mut metadata = MetadataMap::new();
        metadata.insert("macp-error-code", MetadataValue::from_static(self.code));
        if !self.details.is_empty() {
            let details = MetadataValue::from_bytes(self.details.as_bytes());
            metadata.insert_bin("macp-error-details-bin", details);
        }
        if let Some(wait) = self.retry_after_ms {
            metadata.insert("retry-after-ms", MetadataValue::from(wait));
        }
        Status::with_details_and_metadata(self.grpc, self.message.clone(), Bytes::new(), metadata)
    }
}

impl From<Denied> for Refused {
    fn from(denied: Denied) -> Refused {
        let meaning = codes::of_denied(&denied);
        let message = codes::message(&denied);
        let code = codes::code_of(&denied);
        // A policy's no says why, for machines too.
        let more = match meaning.macp {
            "POLICY_DENIED" => {
                let denials = json!([{ "code": denial(code), "message": message }]);
                let mut more = json!({ "reasons": [message], "denials": denials });
                if let Some(proposal) = proposal(&denied) {
                    more["proposal"] = proposal.into();
                }
                more
            }
            _ => json!({}),
        };
        Refused {
            code: meaning.macp,
            grpc: Code::from(meaning.grpc as i32),
            message,
            details: details(code, more),
            retry_after_ms: None,
        }
    }
}

impl From<No> for Refused {
    fn from(no: No) -> Refused {
        match no {
            No::Denied(denied) => Refused::from(denied),
            No::Limited(limited) => Refused::from(limited),
            No::Unfit(unfit) => Refused::invalid(unfit.to_string()),
            No::Unauthenticated(ended) => Refused::from(ended),
            no @ No::DoNotDisturb { .. } => {
                let meaning = no.meaning();
                let refused = Refused::new(meaning.macp, Code::from(meaning.grpc as i32), no.message());
                Refused { details: details(no.code(), json!({})), ..refused }
            }
            no @ (No::NotAdministrator { .. } | No::NotAllowed { .. } | No::NoSuchAgent { .. }) => {
                let refused = Refused::new("FORBIDDEN", Code::PermissionDenied, no.message());
                Refused { details: details(no.code(), json!({})), ..refused }
            }
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Refused {
        Refused::from(Denied::Refused(refusal))
    }
}

impl From<Limited> for Refused {
    fn from(limited: Limited) -> Refused {
        let meaning = codes::of_limited(&limited);
        let retry_after_ms = limited.retry_after_ms();
        let more = json!({ "limit": limited.limit().name(), "retry_after_ms": retry_after_ms });
        Refused {
            code: meaning.macp,
            grpc: Code::from(meaning.grpc as i32),
            message: limited.to_string(),
            details: details(codes::code_of_limited(&limited), more),
            retry_after_ms,
        }
    }
}

impl From<Unauthenticated> for Refused {
    fn from(error: Unauthenticated) -> Refused {
        Refused::new("UNAUTHENTICATED", Code::Unauthenticated, error.to_string())
    }
}

impl From<Refused> for Status {
    fn from(refused: Refused) -> Status {
        refused.status()
    }
}

/// The proposal that a no speaks of.
fn proposal(denied: &Denied) -> Option<u64> {
    match denied {
        Denied::Refused(Refusal::ApprovalNeeded { proposal } | Refusal::NotApproved { proposal, .. }) => {
            Some(proposal.0)
        }
        Denied::Refused(_) | Denied::Fault(_) | Denied::Unreadable(_) | Denied::Stopping => None,
    }
}

/// What MACP calls a policy's reason (RFC-MACP-0012 §6.2).
fn denial(code: &str) -> String {
    match code {
        "REASSIGNMENT_DENIED" => "reassignment_not_allowed".to_owned(),
        "HAND_ON_DENIED" => "handing_on_not_allowed".to_owned(),
        other => other.to_ascii_lowercase(),
    }
}

/// What more there is to say, with our code, which can say more than MACP's, and its page of help.
fn details(code: &str, mut more: Value) -> String {
    more["code"] = code.into();
    more["help"] = codes::link(code).into();
    more.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_carries_the_code_and_the_details_in_its_trailers() {
        let plain = Refused::invalid("expected this, found that").status();
        assert_eq!((plain.code(), plain.message()), (Code::InvalidArgument, "expected this, found that"));
        assert_eq!(plain.metadata().get("macp-error-code").unwrap(), "INVALID_ENVELOPE");
        let details = |status: &Status| -> Value {
            let details = status.metadata().get_bin("macp-error-details-bin").unwrap().to_bytes().unwrap();
            serde_json::from_slice(&details).unwrap()
        };
        assert_eq!(
            details(&plain),
            json!({ "code": "INVALID_ENVELOPE", "help": "/errors/INVALID_ENVELOPE" })
        );

        let denied = Refused::from(Refusal::ReassignmentDenied).status();
        let details = details(&denied);
        assert_eq!(details["help"], "/errors/REASSIGNMENT_DENIED");
        assert_eq!(details["denials"][0]["code"], "reassignment_not_allowed");
        let output: Value = serde_json::from_str(&Refused::from(Refusal::OutputRequired).details).unwrap();
        assert_eq!(
            (&output["denials"][0]["code"], &output["code"]),
            (&json!("output_required"), &json!("OUTPUT_REQUIRED"))
        );
        assert_eq!(details["reasons"][0], denied.message());
    }

    #[test]
    fn a_limit_says_when_to_try_again_in_words_for_machines_and_in_a_trailer() {
        let limited =
            Limited::Rate { kind: handover_desk::limit::Kind::Message, per_minute: 60, retry_after_ms: 250 };
        let refused = Refused::from(limited);
        assert!(refused.message.contains("60 messages a minute") && refused.message.contains("250 ms"));
        let details: serde_json::Value = serde_json::from_str(&refused.details).unwrap();
        let help = "/errors/RATE_LIMITED";
        let expected =
            json!({ "limit": "messages", "retry_after_ms": 250, "code": "RATE_LIMITED", "help": help });
        assert_eq!(details, expected);
        let status = refused.status();
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert_eq!(status.metadata().get("retry-after-ms").unwrap(), "250");
        let streams = Refused::from(Limited::Streams { max: 3 }).status();
        assert!(streams.metadata().get("retry-after-ms").is_none());
    }

    #[test]
    fn an_ack_echoes_both_ids_and_claims_no_state() {
        let ack = Refused::from(Refusal::SessionNotFound).ack("s", "m");
        assert!(!ack.ok && !ack.duplicate);
        assert_eq!((ack.session_id.as_str(), ack.message_id.as_str()), ("s", "m"));
        assert_eq!((ack.session_state(), ack.accepted_at_unix_ms), (SessionState::Unspecified, 0));
        let error = ack.error.unwrap();
        let details: Value = serde_json::from_slice(&error.details).unwrap();
        assert_eq!(error.code, "SESSION_NOT_FOUND");
        assert_eq!(details, json!({ "code": "SESSION_NOT_FOUND", "help": "/errors/SESSION_NOT_FOUND" }));
        assert_eq!((error.session_id.as_str(), error.message_id.as_str()), ("s", "m"));
    }

    #[test]
    fn a_message_with_letters_outside_ascii_is_still_a_status() {
        let status = Refused::invalid("expected x, found \"ä\u{0}\n\"").status();
        assert_eq!(status.message(), "expected x, found \"ä\u{0}\n\"");
    }
}
