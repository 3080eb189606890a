//! gRPC's health checking: whether the server is ready, by the same checks as `/readyz`. So a load balancer that asks over gRPC
//! notices as well that the server is told to stop, or that its store is away.

use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream;
use handover_desk::shutdown::Shutdown;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

use super::Macp;
use super::proto::handover::handover_server::HandoverServer;
use super::proto::v1::macp_runtime_service_server::MacpRuntimeServiceServer;
use crate::http::Checks;

/// How often it is looked at for who watches.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The service. No checks are always passed.
#[derive(Clone)]
pub(super) struct Healthy {
    checks: Option<Checks>,
    shutdown: Shutdown,
}

impl Healthy {
    pub(super) fn new(checks: Option<Checks>, shutdown: Shutdown) -> Healthy {
        Healthy { checks, shutdown }
    }

    async fn status(&self) -> ServingStatus {
        let ready = match &self.checks {
            Some(checks) => checks.findings().await.iter().all(|(_, finding)| finding.is_ok()),
            None => true,
        };
        if ready && !self.shutdown.has_begun() { ServingStatus::Serving } else { ServingStatus::NotServing }
    }
}

fn is_served(service: &str) -> bool {
    let served = [MacpRuntimeServiceServer::<Macp>::NAME, HandoverServer::<Macp>::NAME];
    service.is_empty() || served.contains(&service)
}

#[tonic::async_trait]
impl Health for Healthy {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        if !is_served(&request.into_inner().service) {
            return Err(Status::not_found("expected a service that is served here, found another"));
        }
        Ok(Response::new(HealthCheckResponse { status: self.status().await.into() }))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// The status as it is, and each time that it is another. Of a service that is not served, that it is unknown.
    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (sender, changes) = mpsc::channel(1);
        let (healthy, served) = (self.clone(), is_served(&request.into_inner().service));
        let mut shutdown = self.shutdown.clone();
        tokio::spawn(async move {
            let mut told = None;
            loop {
                let status = if served { healthy.status().await } else { ServingStatus::ServiceUnknown };
                if told.replace(status) != Some(status)
                    && sender.send(Ok(HealthCheckResponse { status: status.into() })).await.is_err()
                {
                    return;
                }
                tokio::select! {
                    () = sender.closed() => return,
                    () = shutdown.begun() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(changes))))
    }
}
