//! Changes of the prefix cache, for routers that send a request to the server that has its prefix.

use std::fmt;

use super::prefix::Parent;

/// A change of the prefix cache. Only whole blocks have events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KvEvent {
    /// Sequences of the tenant can start with the block.
    Stored {
        /// The number of the block; no other block gets it.
        block: u64,
        /// What precedes the block.
        parent: KvParent,
        /// [`KV_BLOCK`](crate::KV_BLOCK) tokens. Those of pictures have numbers from 2^31 on, which stand for the content.
        tokens: Box<[u32]>,
    },
    /// The block was evicted.
    Removed {
        /// The number of the block.
        block: u64,
    },
}

/// What precedes a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvParent {
    /// Nothing: the block is the first one of a text of this tenant.
    Tenant(u64),
    /// The block with this number.
    Block(u64),
}

/// A function that takes each change. The engine's thread calls it, so it must not wait.
pub struct KvListener(Box<dyn FnMut(KvEvent) + Send>);

impl KvListener {
    /// A listener that calls this function.
    pub fn new(take: impl FnMut(KvEvent) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    pub(super) fn take(&mut self, event: KvEvent) {
        (self.0)(event);
    }
}

impl fmt::Debug for KvListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KvListener")
    }
}

impl From<Parent> for KvParent {
    fn from(parent: Parent) -> Self {
        match parent {
            Parent::Tenant(tenant) => Self::Tenant(tenant),
            Parent::Entry(entry) => Self::Block(entry),
        }
    }
}
