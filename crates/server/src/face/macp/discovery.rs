//! What this runtime says of itself, exactly what it serves, and of the agents in its directory.

use serde_json::{Value, json};

use super::admit::{HANDOFF_MODE, MACP_VERSION, TASK_MODE};
use super::proto::v1;
use handover_desk::delegate::MODE_VERSION;
use handover_desk::directory::{Agent, Answers, Skill};

/// The id of this runtime in its own manifest.
pub const RUNTIME_ID: &str = "handover";

/// The answer to `Initialize`.
pub fn initialized() -> v1::InitializeResponse {
    v1::InitializeResponse {
        selected_protocol_version: MACP_VERSION.to_owned(),
        runtime_info: Some(v1::RuntimeInfo {
            name: RUNTIME_ID.to_owned(),
            title: "Handover".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            description: "one server for delegated agent work".to_owned(),
            website_url: String::new(),
        }),
        capabilities: Some(capabilities()),
        supported_modes: vec![TASK_MODE.to_owned(), HANDOFF_MODE.to_owned()],
        instructions: String::new(),
    }
}

fn capabilities() -> v1::Capabilities {
    v1::Capabilities {
        sessions: Some(v1::SessionsCapability { stream: true, list_sessions: true, watch_sessions: true }),
        cancellation: Some(v1::CancellationCapability { cancel_session: true }),
        progress: Some(v1::ProgressCapability { progress: true }),
        manifest: Some(v1::ManifestCapability { get_manifest: true }),
        mode_registry: Some(v1::ModeRegistryCapability { list_modes: true, list_changed: true }),
        roots: Some(v1::RootsCapability { list_roots: true, list_changed: true }),
        policy_registry: Some(v1::PolicyRegistryCapability {
            register_policy: true,
            list_policies: true,
            list_changed: true,
            rule_extensions: Vec::new(),
            what_if_replay: true,
        }),
        decision_receipt: None,
        experimental: None,
    }
}

/// The modes that are served.
pub fn modes() -> Vec<v1::ModeDescriptor> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    vec![
        v1::ModeDescriptor {
            mode: TASK_MODE.to_owned(),
            mode_version: MODE_VERSION.to_owned(),
            title: "Task Mode".to_owned(),
            description: "bounded delegation of one task, bound by the requester".to_owned(),
            determinism_class: "structural-only".to_owned(),
            participant_model: "orchestrated".to_owned(),
            message_types: names(&[
                "SessionStart",
                "TaskRequest",
                "TaskAccept",
                "TaskReject",
                "TaskUpdate",
                "TaskComplete",
                "TaskFail",
                "Commitment",
            ]),
            terminal_message_types: names(&["Commitment"]),
            schema_uris: Default::default(),
        },
        v1::ModeDescriptor {
            mode: HANDOFF_MODE.to_owned(),
            mode_version: MODE_VERSION.to_owned(),
            title: "Handoff Mode".to_owned(),
            description: "transfer of a responsibility from its owner to another participant".to_owned(),
            determinism_class: "context-frozen".to_owned(),
            participant_model: "delegated".to_owned(),
            message_types: names(&[
                "SessionStart",
                "HandoffOffer",
                "HandoffContext",
                "HandoffAccept",
                "HandoffDecline",
                "Commitment",
            ]),
            terminal_message_types: names(&["Commitment"]),
            schema_uris: Default::default(),
        },
    ]
}

/// The runtime's own manifest.
pub fn manifest() -> v1::AgentManifest {
    v1::AgentManifest {
        agent_id: RUNTIME_ID.to_owned(),
        title: "Handover".to_owned(),
        description: "one server for delegated agent work".to_owned(),
        supported_modes: vec![TASK_MODE.to_owned(), HANDOFF_MODE.to_owned()],
        input_content_types: vec!["application/macp-envelope+proto".to_owned()],
        output_content_types: vec!["application/macp-envelope+proto".to_owned()],
        metadata: Default::default(),
        transport_endpoints: Vec::new(),
    }
}

/// The manifest of a registered agent. MACP has no field for skills, so each is JSON in the metadata, under `skill.` and
/// its name; nor for whose words they are, which is there under `described_by`.
pub fn agent_manifest(agent: &Agent) -> v1::AgentManifest {
    let skills = agent.skills.iter().map(|skill| (format!("skill.{}", skill.name), described(skill)));
    let whose = ("described_by".to_owned(), agent.id.clone());
    // Arguments and results of skills are JSON; an agent without skills says nothing of what it takes.
    let content_types: Vec<String> =
        agent.skills.first().iter().map(|_| "application/json".to_owned()).collect();
    v1::AgentManifest {
        agent_id: agent.id.clone(),
        title: agent.name.clone(),
        description: agent.description.clone(),
        // Whatever face it comes through, it takes part in sessions of both modes.
        supported_modes: vec![TASK_MODE.to_owned(), HANDOFF_MODE.to_owned()],
        input_content_types: content_types.clone(),
        output_content_types: content_types,
        metadata: skills.chain([whose]).collect(),
        transport_endpoints: Vec::new(),
    }
}

fn described(skill: &Skill) -> String {
    let parsed = |text: &str| serde_json::from_str::<Value>(text).ok();
    let mut shown = json!({
        "description": skill.description,
        "input_schema": parsed(skill.input()),
        "answers": match Answers::try_from(skill.answers).unwrap_or(Answers::Either) {
            Answers::Either => "either",
            Answers::AtOnce => "at_once",
            Answers::Task => "task",
        },
        "asks_first": skill.asks_first,
        "requires": skill.requires,
        "successors": skill.successors,
    });
    if !skill.title.is_empty() {
        shown["title"] = skill.title.as_str().into();
    }
    for (name, text) in [("output_schema", &skill.output_schema), ("annotations", &skill.annotations)] {
        if let Some(value) = parsed(text) {
            shown[name] = value;
        }
    }
    shown.to_string()
}
