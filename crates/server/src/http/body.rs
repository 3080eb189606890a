//! Reading the body of a request: so many bytes, and so long.

use std::cell::Cell;
use std::error::Error;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use handover_desk::limit::Limited;
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::Body;
use tokio::sync::Semaphore;
use tokio::time::Instant;

tokio::task_local! {
    /// When the body of the request that is being answered was whole: from then on its answer has its time.
    pub(super) static ARRIVED: Cell<Option<Instant>>;
}

/// How many bodies of requests without a good token are read at a time.
const STRANGERS_MAX: usize = 64;

/// How many bytes each of them may have.
const STRANGERS_BYTES_MAX: usize = 64 * 1024;

/// Why a body was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It has too many bytes.
    TooLong,
    /// It did not come in time.
    TooSlow,
    /// Too many are being read.
    Full,
    /// The client ended it early.
    Broken,
    /// Its agent is sending too much at a time.
    Limited(Limited),
}

impl Unread {
    /// Its name in the metrics.
    pub fn name(&self) -> &'static str {
        match self {
            Unread::TooLong => "length",
            Unread::TooSlow => "time",
            Unread::Full => "strangers",
            Unread::Broken => "broken",
            Unread::Limited(_) => "limited",
        }
    }
}

/// A whole body. It is gathered as it comes: nothing is set aside for what is only announced. While it is not whole,
/// `grow` is told how much has come.
pub async fn gather<B>(
    body: B,
    bytes_max: usize,
    within: Duration,
    grow: impl FnMut(usize) -> Result<(), Limited>,
) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Unread::TooLong);
    }
    let read = super::within(within, pin!(parts(body, bytes_max, grow))).await;
    // Tests read bodies outside of requests.
    _ = ARRIVED.try_with(|arrived| arrived.set(Some(Instant::now())));
    read.unwrap_or(Err(Unread::TooSlow))
}

async fn parts<B>(
    body: B,
    bytes_max: usize,
    mut grow: impl FnMut(usize) -> Result<(), Limited>,
) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut body = pin!(body);
    // Most bodies come in one part, which is not copied.
    let (mut first, mut rest) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame =
            frame.map_err(
                |error| {
                    if is_length(error.into().as_ref()) { Unread::TooLong } else { Unread::Broken }
                },
            )?;
        let Ok(part) = frame.into_data() else { continue };
        if first.len() + rest.len() + part.len() > bytes_max {
            return Err(Unread::TooLong);
        }
        if first.is_empty() {
            first = part;
        } else {
            rest.extend_from_slice(&part);
        }
        if !body.is_end_stream() {
            grow(first.len() + rest.len()).map_err(Unread::Limited)?;
        }
    }
    if rest.is_empty() { Ok(first) } else { Ok([first.as_ref(), &rest].concat().into()) }
}

/// Whether a body was cut off because of its length: here, or before it came here.
fn is_length(error: &(dyn Error + 'static)) -> bool {
    let mut causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.any(|cause| cause.is::<LengthLimitError>())
}

/// The one place where the body of a request without a good token is read, where its protocol wants an answer that depends
/// on it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Strangers {
    places: Arc<Semaphore>,
    within: Duration,
}

impl Strangers {
    /// Each body has this long.
    pub fn new(within: Duration) -> Strangers {
        Strangers { places: Arc::new(Semaphore::new(STRANGERS_MAX)), within }
    }

    /// The body, if it is short, comes in time and not too many others are being read.
    pub async fn read<B>(&self, body: B) -> Result<Bytes, Unread>
    where
        B: Body<Data = Bytes>,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let _place = self.places.try_acquire().map_err(|_| Unread::Full)?;
        gather(body, STRANGERS_BYTES_MAX, self.within, |_| Ok(())).await
    }
}
