//! Message ids: the same message twice has one effect, and no message passes for another.

use handover_server::face::macp::proto::v1::Envelope;

use super::stage::*;

/// The same message under another id.
fn called(id: &str, envelope: Envelope) -> Envelope {
    envelope.with(|envelope| envelope.message_id = id.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_a_participant_has_used_does_not_swallow_the_requesters_commitment() {
    let stage = Stage::in_memory().await;
    let (planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    stage.working(SESSION).await;
    worker.ok(called("c1", envelope(SESSION, update("going")))).await;
    worker.ok(envelope(SESSION, complete())).await;
    let before = stage.written();
    let refused = planner.refused(called("c1", envelope(SESSION, commit()))).await;
    assert_eq!(refused.code, "DUPLICATE_MESSAGE");
    assert_eq!(stage.written(), before);
    planner.ok(called("c2", envelope(SESSION, commit()))).await;
    assert_eq!(planner.kinds(SESSION).await.last().unwrap(), "committed");
    drop((planner, worker));
    stage.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_has_the_same_sender_type_and_payload_whenever_it_was_sent() {
    let dir = tempfile::tempdir().unwrap();
    let stage = Stage::on_disk(dir.path()).await;
    stage.working(SESSION).await;
    let first = called("u1", envelope(SESSION, update("going")));
    let acknowledged = stage.agent("worker").ok(first.clone()).await;
    stage.agent("worker").ok(envelope(SESSION, update("on"))).await;
    let before = stage.written();
    stage.stop().await;
    // It is the log that tells, so that a restart makes no difference.
    let stage = Stage::on_disk(dir.path()).await;
    let (mut planner, worker) = (stage.agent("planner"), stage.agent("worker"));
    let again = worker.ok(first.clone().with(|again| again.timestamp_unix_ms = 1_700_000_000_000)).await;
    assert!(again.duplicate);
    assert_eq!(again.accepted_at_unix_ms, acknowledged.accepted_at_unix_ms);
    for other in [
        called("u1", envelope(SESSION, update("further"))),
        called("u1", envelope(SESSION, complete())),
        called("u1", envelope(SESSION, reject())),
    ] {
        assert_eq!(worker.refused(other).await.code, "DUPLICATE_MESSAGE");
    }
    assert_eq!(planner.refused(first.clone()).await.code, "DUPLICATE_MESSAGE");
    assert_eq!(planner.refused(called("u1", envelope(SESSION, commit()))).await.code, "DUPLICATE_MESSAGE");
    // The ids of our own calls are in the same space.
    let named = |id: &str, words: &str| steer(SESSION, words).with(|steer| steer.message_id = id.to_owned());
    let status = planner.handover.steer(named("u1", "left")).await.unwrap_err();
    assert_eq!((status.code(), macp_code(&status)), (tonic::Code::AlreadyExists, "DUPLICATE_MESSAGE"));
    // Who has no part in the session learns no more than before.
    assert_eq!(stage.agent("outsider").refused(first).await.code, "FORBIDDEN");
    assert_eq!(stage.written(), before);
    planner.handover.steer(named("s1", "left")).await.unwrap();
    assert!(planner.handover.steer(named("s1", "left")).await.unwrap().into_inner().duplicate);
    let status = planner.handover.steer(named("s1", "right")).await.unwrap_err();
    assert_eq!(macp_code(&status), "DUPLICATE_MESSAGE");
    let (frames, mut listening) = worker.stream().await;
    frames.send(frame(called("u1", envelope(SESSION, complete())))).await.unwrap();
    assert_eq!(listening.error().await.code, "DUPLICATE_MESSAGE");
    drop((frames, listening, planner, worker));
    stage.stop().await;
}
