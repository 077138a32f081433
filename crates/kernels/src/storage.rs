//! Weights, activations and caches as opaque values of the backend that made them.

use std::any::Any;
use std::fmt;

/// A value of a backend's own type, opaque to this crate.
pub struct Storage(Box<dyn Stored>);

/// Every type that can be stored.
trait Stored: Any + fmt::Debug + Send + Sync {}

impl<T: Any + fmt::Debug + Send + Sync> Stored for T {}

impl Storage {
    /// Stores a value.
    pub fn new<T: Any + fmt::Debug + Send + Sync>(value: T) -> Self {
        Self(Box::new(value))
    }

    /// The value, if it has this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        let any: &dyn Any = &*self.0;
        any.downcast_ref()
    }

    /// The value for writing, if it has this type.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        let any: &mut dyn Any = &mut *self.0;
        any.downcast_mut()
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
