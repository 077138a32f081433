//! The op suite and the model tests.
