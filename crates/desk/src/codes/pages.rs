//! A page of help for every code: what it means, why it happens, what to do. The pages are `docs/errors`; the binary
//! carries them, because a server may have no way to the internet.

macro_rules! pages {
    ($($code:literal)+) => {
        /// Every code that a caller can get, in alphabetical order.
        pub const ALL: &[&str] = &[$($code),+];

        const PAGES: &[&str] = &[$(include_str!(concat!("../../../../docs/errors/", $code, ".md"))),+];
    };
}

pages! {
    "AGENT_NOT_FOUND"
    "ALREADY_ASSIGNED"
    "ALREADY_DECIDED"
    "ALREADY_PAUSED"
    "ALREADY_REPORTED"
    "ALREADY_REQUESTED"
    "APPROVAL_NEEDED"
    "BACKUP_RUNNING"
    "BUDGET_SPENT"
    "BUSY"
    "CHECKS_BUSY"
    "CHECK_TOO_COSTLY"
    "DECLINED"
    "DO_NOT_DISTURB"
    "DUPLICATE_MESSAGE"
    "FORBIDDEN"
    "HANDOFF_ID_USED"
    "HAND_ON_DENIED"
    "HEADER_MISMATCH"
    "HOST_INVALID"
    "HOST_REFUSED"
    "INTERNAL_ERROR"
    "INVALID"
    "INVALID_ENVELOPE"
    "INVALID_PARAMS"
    "INVALID_POLICY_DEFINITION"
    "INVALID_REQUEST"
    "INVALID_SESSION_ID"
    "LOG_FULL"
    "LOG_UNREADABLE"
    "MEMORY_BUDGET_SPENT"
    "METHOD_NOT_ALLOWED"
    "METHOD_NOT_FOUND"
    "MISSING_CAPABILITY"
    "MODE_NOT_SUPPORTED"
    "NOT_ADMINISTRATOR"
    "NOT_ALLOWED"
    "NOT_ANSWERED"
    "NOT_APPROVED"
    "NOT_APPROVER"
    "NOT_ASSIGNEE"
    "NOT_AUTHORITY"
    "NOT_DELIVERABLE"
    "NOT_ELIGIBLE"
    "NOT_FOUND"
    "NOT_PARTICIPANT"
    "NOT_PAUSED"
    "NOT_REPORTED"
    "NOT_REQUESTED"
    "NOT_REQUESTER"
    "NOT_RUNNING"
    "NOT_RUNTIME"
    "NOT_TAKEN_PART"
    "NOT_TARGET"
    "NO_LONGER_ASSIGNEE"
    "NO_PROPOSAL"
    "OFFER_ACCEPTED"
    "OFFER_CLOSED"
    "OFFER_OUTSTANDING"
    "ORIGIN_REFUSED"
    "OUTCOME_MISMATCH"
    "OUTPUT_REQUIRED"
    "PARSE_ERROR"
    "PAYLOAD_TOO_LARGE"
    "POLICY_DENIED"
    "POLICY_INVALID"
    "POLICY_UNKNOWN"
    "QUESTION_KEY_USED"
    "RATE_LIMITED"
    "REASSIGNMENT_DENIED"
    "REQUEST_TIMEOUT"
    "RESERVED_ID"
    "RESOURCE_NOT_FOUND"
    "SERVER_UNREACHABLE"
    "SESSION_ALREADY_EXISTS"
    "SESSION_ENDED"
    "SESSION_EXISTS"
    "SESSION_NOT_FOUND"
    "SESSION_NOT_OPEN"
    "SESSION_SUSPENDED"
    "STOPPING"
    "STORAGE_BUDGET_SPENT"
    "STORE_FULL"
    "STORE_UNAVAILABLE"
    "STREAM_LAGGED"
    "TARGET_DECLINED"
    "TASK_EXPIRED"
    "TIMEOUT"
    "TOO_MANY_CHILDREN"
    "TOO_MANY_CONNECTIONS"
    "TOO_MANY_MESSAGES"
    "TOO_MANY_OFFERS"
    "TOO_MANY_PARTICIPANTS"
    "TOO_MANY_PROPOSALS"
    "TOO_MANY_QUESTIONS"
    "TOO_MANY_SESSIONS"
    "TOO_MANY_STEERS"
    "UNAUTHENTICATED"
    "UNKNOWN_HANDOFF"
    "UNKNOWN_POLICY_VERSION"
    "UNKNOWN_QUESTION"
    "UNSUPPORTED_MEDIA_TYPE"
    "UNSUPPORTED_PROTOCOL_VERSION"
    "VERSION_MISMATCH"
    "WRONG_MODE"
    "WRONG_TASK"
}

/// Where the pages are served.
pub const PATH: &str = "/errors";

/// The list of all pages, in Markdown.
pub const INDEX: &str = include_str!("../../../../docs/errors/README.md");

/// Where the server has the page of a code.
pub fn link(code: &str) -> String {
    format!("{PATH}/{code}")
}

/// The page of a code, in Markdown.
pub fn page(code: &str) -> Option<&'static str> {
    ALL.binary_search(&code).ok().map(|place| PAGES[place])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use handover_kernel::Refusal;

    use super::super::own::{self, Own, Retry};
    use super::super::tests::refusals;
    use super::super::{Grpc, Meaning, of_refusal};
    use super::*;

    fn grpc(status: Grpc) -> &'static str {
        match status {
            Grpc::InvalidArgument => "INVALID_ARGUMENT",
            Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Grpc::NotFound => "NOT_FOUND",
            Grpc::AlreadyExists => "ALREADY_EXISTS",
            Grpc::PermissionDenied => "PERMISSION_DENIED",
            Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Grpc::FailedPrecondition => "FAILED_PRECONDITION",
            Grpc::Unavailable => "UNAVAILABLE",
            Grpc::DataLoss => "DATA_LOSS",
            Grpc::Unauthenticated => "UNAUTHENTICATED",
        }
    }

    /// The line of a page that says what its code is called on every wire.
    fn line(macp: Option<&str>, statuses: &[Grpc], http: &[u16], json_rpc: &[i32], retry: Retry) -> String {
        let wire = |name: &str, found: Vec<String>| {
            (!found.is_empty()).then(|| format!("{name} {}", found.join(" or ")))
        };
        let retry = match retry {
            Retry::Yes => "yes",
            Retry::No => "no",
            Retry::Depends => "depends",
        };
        let parts = [
            macp.map(|code| format!("MACP `{code}`")),
            wire("gRPC", statuses.iter().map(|status| format!("`{}`", grpc(*status))).collect()),
            wire("HTTP", http.iter().map(ToString::to_string).collect()),
            wire("JSON-RPC", json_rpc.iter().map(ToString::to_string).collect()),
            Some(format!("retryable: {retry}")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" · ")
    }

    /// Every code with its line: the kernel's, and the others.
    fn lines() -> Vec<(&'static str, String)> {
        let kernel = refusals().into_iter().map(|refusal| {
            let Meaning { macp, grpc, http, json_rpc, retry } = of_refusal(&refusal);
            let retry = if retry { Retry::Yes } else { Retry::No };
            (refusal.code(), line(Some(macp), &[grpc], &[http], &[json_rpc], retry))
        });
        let own = own::ALL.iter().map(|own| {
            let Own { code, macp, grpc, http, json_rpc, retry } = own;
            (*code, line(*macp, grpc, http, json_rpc, *retry))
        });
        kernel.chain(own).collect()
    }

    /// What a page says first.
    fn summary(page: &str) -> &str {
        page.lines().nth(6).unwrap_or_default()
    }

    #[test]
    fn every_code_of_the_tables_has_a_page_and_no_page_has_no_code() {
        let codes: Vec<&str> =
            Refusal::CODES.iter().copied().chain(own::ALL.iter().map(|own| own.code)).collect();
        let distinct: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(distinct.len(), codes.len(), "a code is in both tables");
        assert_eq!(ALL, distinct.iter().copied().collect::<Vec<_>>(), "in alphabetical order");
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "README.md")
            .collect();
        assert_eq!(files, distinct.iter().map(|code| format!("{code}.md")).collect());
    }

    #[test]
    fn a_page_says_what_its_code_is_called_on_every_wire_what_it_means_why_it_happens_and_what_to_do() {
        for (code, line) in lines() {
            let page = page(code).unwrap();
            let head = format!("# {code}\n\n{line}\n\n## What it means\n\n");
            assert!(page.starts_with(&head), "{code}: expected the page to begin with\n{head}");
            let headings: Vec<&str> = page.lines().filter(|line| line.starts_with('#')).skip(1).collect();
            assert_eq!(headings, ["## What it means", "## Why it happens", "## What to do"], "{code}");
            assert!(page.lines().count() <= 30, "{code} is long");
            for section in page.split("\n## ").skip(1) {
                assert!(
                    section.split_once("\n\n").is_some_and(|(_, text)| !text.trim().is_empty()),
                    "{code}"
                );
            }
        }
    }

    #[test]
    fn pages_link_only_to_what_is_there() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
        for page in PAGES.iter().chain([&INDEX]) {
            for link in page.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
                let file = link.split('#').next().unwrap();
                assert!(folder.join(file).is_file(), "{link}");
            }
        }
    }

    #[test]
    fn the_index_has_one_line_for_each_page_which_says_what_the_page_says_first() {
        let listed: Vec<&str> = INDEX.lines().filter(|line| line.starts_with("- ")).collect();
        let expected: Vec<String> = ALL
            .iter()
            .map(|code| format!("- [{code}]({code}.md): {}", summary(page(code).unwrap())))
            .collect();
        assert_eq!(listed, expected);
    }

    #[test]
    fn a_code_of_macp_is_called_on_the_other_wires_as_the_refusals_behind_it_are() {
        for refusal in refusals() {
            let meaning = of_refusal(&refusal);
            let general = own::ALL.iter().copied().chain([&own::PAYLOAD_TOO_LARGE]);
            let Some(own) = general.into_iter().find(|own| own.code == meaning.macp) else {
                assert_eq!(refusal.code(), meaning.macp, "{refusal:?}");
                continue;
            };
            assert_eq!(own.macp, Some(meaning.macp), "{refusal:?}");
            assert!(own.grpc.contains(&meaning.grpc), "{refusal:?}");
            assert!(own.http.contains(&meaning.http), "{refusal:?}");
            assert!(own.json_rpc.contains(&meaning.json_rpc), "{refusal:?}");
        }
    }

    #[test]
    fn only_codes_have_pages() {
        assert_eq!(link("BUSY"), "/errors/BUSY");
        assert!(page("BUSY").is_some_and(|page| page.starts_with("# BUSY\n")));
        for wrong in ["", "busy", "README", "BUSY.md", "../README"] {
            assert_eq!(page(wrong), None, "{wrong}");
        }
    }
}
