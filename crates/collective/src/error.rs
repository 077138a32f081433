use std::time::Duration;

/// Why ranks cannot go on together. After the first error of a group, each call of each rank returns it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank failed, or its thread or process ended.
    #[error("rank {rank}: lost ({reason}); start all ranks again")]
    Lost {
        /// The rank that is lost.
        rank: usize,
        /// What it reported, or how it was noticed.
        reason: String,
    },
    /// A rank did not make a call that others wait in.
    #[error("rank {rank}: not in {operation} after {seconds} s; look for its error, and start all ranks again")]
    Deadline {
        /// The first rank that is missing.
        rank: usize,
        /// The call in which the others wait.
        operation: &'static str,
        /// The deadline.
        seconds: f64,
    },
    /// Ranks made different calls.
    #[error(
        "rank {rank}: calls do not match (found {found}, expected {expected}); run the same version of the program with the same \
         options and files on all ranks"
    )]
    Mismatch {
        /// The rank that noticed it.
        rank: usize,
        /// What this rank called.
        found: String,
        /// What another rank called, or what the arguments need.
        expected: String,
    },
    /// There is no such rank.
    #[error("rank: {rank} is out of range (found {rank}, expected 0 to {}); name a rank of this group", .size - 1)]
    Rank {
        /// The rank that was named.
        rank: usize,
        /// The number of ranks.
        size: usize,
    },
    /// A library of collectives is missing, cannot be used, or reported an error.
    #[error("{library}: {problem}; {remedy}")]
    Library {
        /// The library's name.
        library: &'static str,
        /// What is wrong.
        problem: String,
        /// What to install or change.
        remedy: String,
    },
}

impl Error {
    pub(crate) fn deadline(rank: usize, operation: &'static str, deadline: Duration) -> Self {
        Self::Deadline { rank, operation, seconds: deadline.as_secs_f64() }
    }

    /// A library's error with another remedy than to install it.
    pub(crate) fn with_remedy(self, remedy: &str) -> Self {
        match self {
            Self::Library { library, problem, .. } => Self::Library { library, problem, remedy: remedy.into() },
            other => other,
        }
    }
}
