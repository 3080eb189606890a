//! Reading the body of a request: so many bytes, and so long.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;
use tokio::sync::Semaphore;

/// How many bodies of requests without a good token are read at a time.
const STRANGERS_MAX: usize = 64;

/// How many bytes each of them may have.
const STRANGERS_BYTES_MAX: usize = 64 * 1024;

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unread {
    /// It has too many bytes.
    TooLong,
    /// It did not come in time.
    TooSlow,
    /// Too many are being read.
    Full,
    /// The client ended it early.
    Broken,
}

impl Unread {
    /// Its name in the metrics.
    pub fn name(self) -> &'static str {
        match self {
            Unread::TooLong => "length",
            Unread::TooSlow => "time",
            Unread::Full => "strangers",
            Unread::Broken => "broken",
        }
    }
}

/// A whole body. It is gathered as it comes: nothing is set aside for what is only announced.
pub async fn gather<B>(body: B, bytes_max: usize, within: Duration) -> Result<Bytes, Unread>
where
    B: Body<Data = Bytes>,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if body.size_hint().lower() > bytes_max as u64 {
        return Err(Unread::TooLong);
    }
    let read = Limited::new(body, bytes_max).collect();
    match tokio::time::timeout(within, read).await {
        Ok(Ok(read)) => Ok(read.to_bytes()),
        Ok(Err(error)) if is_length(error.as_ref()) => Err(Unread::TooLong),
        Ok(Err(_)) => Err(Unread::Broken),
        Err(_) => Err(Unread::TooSlow),
    }
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
        gather(body, STRANGERS_BYTES_MAX, self.within).await
    }
}
