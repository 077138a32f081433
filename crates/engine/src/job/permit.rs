//! Permits to be among the requests that an engine takes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The permits that each tenant has; tenants without permits are left out.
#[derive(Debug, Default)]
pub(crate) struct Permits(Mutex<HashMap<u64, usize>>);

/// A permit to be among the requests that an engine takes of a tenant at a time; free again when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    tenant: u64,
}

impl Permits {
    /// Reserves `count` of a tenant's `places`, or none of them.
    pub(crate) fn take(self: &Arc<Self>, tenant: u64, places: usize, count: usize) -> Option<Vec<Permit>> {
        let mut taken = self.lock();
        let all = taken.get(&tenant).copied().unwrap_or(0).checked_add(count).filter(|&all| all <= places)?;
        if count > 0 {
            taken.insert(tenant, all);
        }
        Some((0..count).map(|_| Permit { permits: self.clone(), tenant }).collect())
    }

    /// No holder of the lock panics.
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut taken = self.permits.lock();
        match taken.get_mut(&self.tenant) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(taken.remove(&self.tenant)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_tenant_has_its_own_places() {
        let permits = Arc::new(Permits::default());
        let mut first = permits.take(1, 3, 2).expect("two of three");
        assert!(permits.take(1, 3, 2).is_none() && permits.take(1, 3, usize::MAX).is_none());
        let second = permits.take(2, 3, 3).expect("three of three");
        assert!(permits.take(2, 3, 1).is_none());
        first.pop();
        assert_eq!(permits.take(1, 3, 2).map(|permits| permits.len()), Some(2));
        drop((first, second));
        assert!(permits.take(3, 0, 0).is_some_and(|none| none.is_empty()));
        assert!(permits.lock().is_empty());
    }
}
