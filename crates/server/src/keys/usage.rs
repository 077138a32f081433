//! What a key has used of its limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::{Client, KeyLimits};
use crate::error::ApiError;

/// The requests of a tenant.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// Requests that run or wait.
    running: u32,
    /// The time at which all accepted requests would be within the rate, if they had arrived evenly; `None` before the
    /// first.
    due: Option<Instant>,
}

/// A request that a client may make; counted among those at a time until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Arc<Used>);

impl Client {
    /// Counts a request, if it is within the limits of the key.
    pub(crate) fn turn(&self) -> Result<Turn, ApiError> {
        self.used.take(self.limits, Instant::now()).map_err(|refusal| self.refused(refusal))?;
        Ok(Turn(self.used.clone()))
    }

    fn refused(&self, refusal: Refusal) -> ApiError {
        let (message, wait) = match refusal {
            Refusal::Concurrent(most) => {
                (format!("{most} requests of this key run or wait, which is its limit; wait for one of them"), 1)
            }
            Refusal::Rate(most, wait) => {
                // Rounded up, so that the request is taken then.
                let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
                (format!("this key may make {most} requests in a minute; try again in {seconds} s"), seconds)
            }
        };
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("rate_limit_exceeded").retry_after(wait)
    }
}

/// Why a request is not taken.
#[derive(Debug, PartialEq)]
enum Refusal {
    /// The most requests at a time.
    Concurrent(u32),
    /// The most requests in a minute, and when the next is taken.
    Rate(u32, Duration),
}

impl Used {
    /// Counts a request that arrives now. The rate uses the generic cell rate algorithm (ITU-T I.371): a request uses
    /// one interval, and a minute's requests can arrive at the same time.
    fn take(&self, limits: KeyLimits, now: Instant) -> Result<(), Refusal> {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(most) = limits.concurrent.filter(|&most| counted.running >= most) {
            return Err(Refusal::Concurrent(most));
        }
        if let Some(most) = limits.requests_per_minute {
            const MINUTE: Duration = Duration::from_secs(60);
            let due = counted.due.map_or(now, |due| due.max(now)) + MINUTE / most;
            match due.saturating_duration_since(now).checked_sub(MINUTE) {
                Some(wait) if !wait.is_zero() => return Err(Refusal::Rate(most, wait)),
                _ => counted.due = Some(due),
            }
        }
        counted.running += 1;
        Ok(())
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counted = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.running = counted.running.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_has_so_many_requests() {
        let (used, start) = (Used::default(), Instant::now());
        let limits = KeyLimits { requests_per_minute: Some(6), concurrent: None };
        let at = |seconds: u64| used.take(limits, start + Duration::from_secs(seconds));
        assert!((0..6).all(|_| at(0) == Ok(())));
        assert_eq!(at(0), Err(Refusal::Rate(6, Duration::from_secs(10))));
        assert_eq!(at(4), Err(Refusal::Rate(6, Duration::from_secs(6))));
        assert_eq!((at(10), at(10).is_err(), at(25), at(25).is_err()), (Ok(()), true, Ok(()), true));
        // A minute of silence, and no more than a minute's requests after two.
        assert!((0..6).all(|_| at(145) == Ok(())) && at(145).is_err());
    }

    #[test]
    fn so_many_run_at_a_time() {
        let used = Arc::new(Used::default());
        let limits = KeyLimits { concurrent: Some(2), requests_per_minute: None };
        let take = || used.take(limits, Instant::now()).map(|()| Turn(used.clone()));
        let (first, second) = (take().expect("the first"), take().expect("the second"));
        assert_eq!(take().err(), Some(Refusal::Concurrent(2)));
        drop(first);
        drop(take().expect("the third"));
        drop(second);
        // Requests are counted without a limit too, because a limit can be set later.
        let many: Vec<Turn> = (0..5)
            .map(|_| used.take(KeyLimits::default(), Instant::now()).map(|()| Turn(used.clone())))
            .map(|turn| turn.expect("no limit"))
            .collect();
        assert!(take().is_err());
        drop(many);
        assert!(take().is_ok());
    }
}
