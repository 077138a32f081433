//! What a key has used of its limits.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::{Client, KeyLimits};
use crate::error::ApiError;

/// The sequences of a tenant.
#[derive(Debug, Default)]
pub(super) struct Used(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    /// Sequences that run or wait.
    running: usize,
    /// The time at which all accepted sequences would be within the rate, if they had arrived evenly; `None` before the
    /// first.
    due: Option<Instant>,
}

/// The sequences of a request that a client may make. They count among those at a time until it is dropped. If it is
/// dropped before [`start`](Self::start), because the request is refused, they do not count for the rate.
#[derive(Debug)]
pub(crate) struct Turn {
    used: Arc<Used>,
    sequences: usize,
    /// The part of the rate that they use, until the request starts.
    charged: Duration,
}

impl Client {
    /// Counts the sequences of a request, if they are within the limits of the key.
    pub(crate) fn turn(&self, sequences: usize) -> Result<Turn, ApiError> {
        let charged =
            self.used.take(self.limits, sequences, Instant::now()).map_err(|refusal| self.refused(refusal))?;
        Ok(Turn { used: self.used.clone(), sequences, charged })
    }

    fn refused(&self, refusal: Refusal) -> ApiError {
        let (message, wait) = match refusal {
            Refusal::Never { asked, most, limit } => {
                let message = format!(
                    "the request needs {asked} completions, but the limit of this key is {limit}={most}; request fewer"
                );
                return ApiError::new(StatusCode::BAD_REQUEST, message);
            }
            Refusal::Concurrent { asked, running, most } => {
                let message = format!(
                    "{running} completions of this key run or wait, this request needs {asked}, and the key's limit is \
                     {most}; wait for one of them"
                );
                (message, 1)
            }
            Refusal::Rate(most, wait) => {
                // Rounded up, so that the request is taken then.
                let seconds = wait.as_secs_f64().ceil().max(1.0) as u32;
                (format!("this key may make {most} completions in a minute; try again in {seconds} s"), seconds)
            }
        };
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, message).with_code("rate_limit_exceeded").retry_after(wait)
    }
}

/// Why sequences are not taken.
#[derive(Debug, PartialEq)]
enum Refusal {
    /// More than a limit allows at all; the limit by its name in a line of keys.
    Never { asked: usize, most: u32, limit: &'static str },
    /// Too many at a time.
    Concurrent { asked: usize, running: usize, most: u32 },
    /// The most sequences in a minute, and when these are taken.
    Rate(u32, Duration),
}

impl Used {
    /// Counts sequences that arrive now, and returns what they use of the rate. The rate uses the generic cell rate
    /// algorithm (ITU-T I.371): a sequence uses one interval, and a minute's sequences can arrive at the same time.
    fn take(&self, limits: KeyLimits, sequences: usize, now: Instant) -> Result<Duration, Refusal> {
        let KeyLimits { requests_per_minute: rate, concurrent } = limits;
        for (limit, most) in [("concurrent", concurrent), ("rpm", rate)] {
            if let Some(most) = most.filter(|&most| sequences > most as usize) {
                return Err(Refusal::Never { asked: sequences, most, limit });
            }
        }
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let running = counted.running;
        if let Some(most) = concurrent.filter(|&most| running + sequences > most as usize) {
            return Err(Refusal::Concurrent { asked: sequences, running, most });
        }
        let mut charged = Duration::ZERO;
        if let Some(most) = rate {
            const MINUTE: Duration = Duration::from_secs(60);
            // At most a minute, because there are at most so many sequences.
            charged = MINUTE.mul_f64(sequences as f64 / f64::from(most));
            let due = counted.due.map_or(now, |due| due.max(now)) + charged;
            match due.saturating_duration_since(now).checked_sub(MINUTE) {
                Some(wait) if !wait.is_zero() => return Err(Refusal::Rate(most, wait)),
                _ => counted.due = Some(due),
            }
        }
        counted.running += sequences;
        Ok(charged)
    }
}

impl Turn {
    /// The request starts: from now on it counts for the rate.
    pub(crate) fn start(&mut self) {
        self.charged = Duration::ZERO;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut counted = self.used.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.running = counted.running.saturating_sub(self.sequences);
        counted.due = counted.due.and_then(|due| due.checked_sub(self.charged));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(rate: Option<u32>, concurrent: Option<u32>) -> KeyLimits {
        KeyLimits { requests_per_minute: rate, concurrent }
    }

    #[test]
    fn a_minute_has_so_many_sequences() {
        let (used, start) = (Used::default(), Instant::now());
        let take = |count, seconds: u64| {
            used.take(limits(Some(6), None), count, start + Duration::from_secs(seconds)).map(|_| ())
        };
        let at = |seconds| take(1, seconds);
        assert!((0..6).all(|_| at(0) == Ok(())));
        assert_eq!(at(0), Err(Refusal::Rate(6, Duration::from_secs(10))));
        assert_eq!(at(4), Err(Refusal::Rate(6, Duration::from_secs(6))));
        assert_eq!((at(10), at(10).is_err(), at(25), at(25).is_err()), (Ok(()), true, Ok(()), true));
        // A minute of silence, and no more than a minute's sequences after two.
        assert!((0..6).all(|_| at(145) == Ok(())) && at(145).is_err());
        // Several are taken together, or none.
        assert_eq!((take(4, 300), take(3, 300)), (Ok(()), Err(Refusal::Rate(6, Duration::from_secs(10)))));
        assert_eq!((take(2, 300), take(1, 300).is_err()), (Ok(()), true));
        assert_eq!(take(7, 600), Err(Refusal::Never { asked: 7, most: 6, limit: "rpm" }));
    }

    #[test]
    fn so_many_run_at_a_time() {
        let used = Arc::new(Used::default());
        let turn = |limits, sequences| {
            let charged = used.take(limits, sequences, Instant::now())?;
            Ok::<_, Refusal>(Turn { used: used.clone(), sequences, charged })
        };
        let take = |sequences| turn(limits(None, Some(3)), sequences);
        let (first, second) = (take(1).expect("the first"), take(2).expect("two more"));
        assert_eq!(take(1).err(), Some(Refusal::Concurrent { asked: 1, running: 3, most: 3 }));
        assert_eq!(take(4).err(), Some(Refusal::Never { asked: 4, most: 3, limit: "concurrent" }));
        drop(first);
        drop(take(1).expect("one more"));
        assert!(take(2).is_err());
        drop(second);
        // Sequences are counted without a limit too, because a limit can be set later.
        let many: Vec<Turn> = (0..5).map(|_| turn(KeyLimits::default(), 1).expect("no limit")).collect();
        assert!(take(1).is_err());
        drop(many);
        assert!(take(3).is_ok());
    }

    #[test]
    fn what_is_refused_does_not_count_for_the_rate() {
        let used = Arc::new(Used::default());
        let take = |sequences| {
            let charged = used.take(limits(Some(2), None), sequences, Instant::now())?;
            Ok::<_, Refusal>(Turn { used: used.clone(), sequences, charged })
        };
        (0..5).for_each(|_| drop(take(2).expect("none of them has started")));
        (0..2).for_each(|_| take(1).expect("within the rate").start());
        assert!(matches!(take(1), Err(Refusal::Rate(2, _))));
    }
}
