//! Keys of clients: their names, their limits, and how much of a limit is used.
//!
//! `Key` is what a server is started with. `Keys` has those that hold now: they can be replaced while the server runs,
//! and a key that stays keeps its tenant and what it has used of its limits.
//!
//! # A key's name is its tenant
//!
//! The number of a tenant is a salted hash of the name, or of the key if it has no name (`keys.rs`). *So keys can be
//! replaced while the server runs, and a reused number never finds another tenant's cache.*

mod key;
mod usage;

use std::collections::HashMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock};

use sha2::{Digest, Sha256};
use subtle::{ConditionallySelectable, ConstantTimeEq};

pub use key::{Key, KeyError, KeyLimits};
pub(crate) use usage::Turn;
use usage::Used;

/// The keys of a server, which can be replaced while it runs. Clones are the same keys.
#[derive(Debug, Clone)]
pub struct Keys(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    now: RwLock<Current>,
    /// Makes numbers of tenants, which nobody outside can foresee.
    salts: RandomState,
}

/// The keys that hold now.
#[derive(Debug, Default)]
struct Current {
    /// Whether a request must name a key. A server that was started with keys never stops requesting one.
    required: bool,
    clients: Vec<Arc<Client>>,
    /// What tenants have used of their limits, also those whose keys are gone.
    used: HashMap<u64, Arc<Used>>,
    /// Digests of keys without a name, in the order in which they came. So each has the same name as long as the server
    /// runs.
    unnamed: Vec<[u8; 32]>,
}

/// Who has a key.
#[derive(Debug)]
pub(crate) struct Client {
    digest: [u8; 32],
    /// The name of the key, or its number.
    pub(crate) name: Arc<str>,
    /// See [`gristmill_engine::Request::tenant`]; not 0.
    pub(crate) tenant: u64,
    limits: KeyLimits,
    used: Arc<Used>,
}

impl Keys {
    pub(crate) fn new(keys: &[Key]) -> Keys {
        let shared = Shared { now: RwLock::default(), salts: RandomState::new() };
        let new = Keys(Arc::new(shared));
        new.replace(keys);
        new
    }

    /// Replaces all keys. Requests that run continue. Without any key, a server that had keys refuses all requests.
    pub fn replace(&self, keys: &[Key]) {
        let mut now = self.0.now.write().unwrap_or_else(PoisonError::into_inner);
        let clients = keys.iter().map(|key| now.client(key, &self.0.salts)).collect();
        now.required |= !keys.is_empty();
        now.clients = clients;
    }

    /// Whether a request must name a key.
    pub(crate) fn required(&self) -> bool {
        self.0.now.read().unwrap_or_else(PoisonError::into_inner).required
    }

    /// Who has this key. Takes as long for a wrong key as for a right one.
    pub(crate) fn find(&self, key: &str) -> Option<Arc<Client>> {
        // Digests have one length, whatever the length of the keys.
        let given = Sha256::digest(key);
        let now = self.0.now.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = 0;
        for (client, number) in now.clients.iter().zip(1u64..) {
            let same = client.digest.ct_eq(given.as_slice());
            found = u64::conditional_select(&found, &number, same);
        }
        now.clients.get(usize::try_from(found).ok()?.checked_sub(1)?).cloned()
    }
}

impl Current {
    /// The client of a key. Keys of one name are one tenant, so that a key can be changed while the old one still holds.
    fn client(&mut self, key: &Key, salts: &RandomState) -> Arc<Client> {
        let (digest, limits) = (key.digest, key.limits);
        let (name, tenant) = match &key.name {
            Some(name) => (name.as_str().into(), salts.hash_one(name)),
            None => {
                let known = self.unnamed.iter().position(|other| *other == digest);
                let number = known.unwrap_or_else(|| {
                    self.unnamed.push(digest);
                    self.unnamed.len() - 1
                });
                (format!("key-{}", number + 1).into(), salts.hash_one(digest))
            }
        };
        // 0 is the tenant of a server without keys.
        let tenant = tenant.max(1);
        let used = self.used.entry(tenant).or_default().clone();
        Arc::new(Client { digest, name, tenant, limits, used })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(lines: &[&str]) -> Vec<Key> {
        lines.iter().map(|line| line.parse().expect("a key")).collect()
    }

    #[test]
    fn a_key_that_stays_keeps_its_tenant() {
        let keys_now = Keys::new(&keys(&["one", "two anna", "three anna", "four"]));
        let found = |key: &str| keys_now.find(key).map(|client| (client.name.to_string(), client.tenant));
        let names = ["one", "two", "three", "four"].map(|key| found(key).expect("a key"));
        let of = |at: usize| names[at].0.as_str();
        assert_eq!((of(0), of(1), of(2), of(3)), ("key-1", "anna", "anna", "key-2"));
        assert!(names[1].1 == names[2].1 && names[0].1 != names[3].1 && names[0].1 != names[1].1);
        assert_eq!(found("five"), None);
        keys_now.replace(&keys(&["five", "four", "six anna"]));
        assert_eq!((found("one"), found("two")), (None, None));
        assert_eq!(found("four").as_ref(), Some(&names[3]));
        assert_eq!(found("six"), Some(names[1].clone()));
        assert_eq!(found("five").expect("a key").0, "key-3");
        keys_now.replace(&[]);
        assert!(keys_now.required() && found("four").is_none());
        assert!(!Keys::new(&[]).required());
    }
}
