//! The built binary is killed with MCP tasks running, and started again: clients poll on, and every task finishes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod binary;

use binary::{handover, said};
use serde_json::Value;

/// The benchmark begins the tasks, works on them and polls them, kills the server in the middle and starts it again. It
/// fails by itself if a task is lost or has another result; here the counts are looked at as well.
#[test]
fn a_crash_in_the_middle_of_running_mcp_tasks_loses_none() {
    let data = tempfile::tempdir().unwrap();
    let mut bench = handover();
    bench.args(["bench", "mcp", "--part", "restart", "--toy", "--json", "--data"]).arg(data.path());
    let output = bench.output().unwrap();
    let (stdout, stderr) = said(&output);
    assert!(output.status.success(), "{stderr}");
    let result: Value = serde_json::from_str(stdout).unwrap();
    let counted = |name: &str| result["restart"][name].as_u64().unwrap();
    assert_eq!((counted("tasks"), counted("finished"), counted("lost")), (50, 50, 0));
    assert!(counted("completed_before_the_kill") < 50, "the kill came after the work");
    assert!(counted("calls_interrupted") > 0, "nobody noticed the kill");
}
