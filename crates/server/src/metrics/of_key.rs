//! What each key uses.

use gristmill_engine::Usage;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// The label of a key.
type Label = [(&'static str, String); 1];

/// Counters of all keys.
#[derive(Debug, Default)]
pub(super) struct OfKeys {
    requests: Family<Label, Counter>,
    prompt_tokens: Family<Label, Counter>,
    reused_tokens: Family<Label, Counter>,
    generated_tokens: Family<Label, Counter>,
}

/// Counters of one key.
#[derive(Debug)]
pub(super) struct OfKey {
    requests: Counter,
    prompt_tokens: Counter,
    reused_tokens: Counter,
    generated_tokens: Counter,
}

impl OfKeys {
    pub(super) fn register(&self, registry: &mut Registry) {
        for (name, help, family) in [
            ("key_ended_requests", "Requests of a key that have ended", &self.requests),
            ("key_prompt_tokens", "Tokens of the prompts of a key's ended requests", &self.prompt_tokens),
            ("key_prompt_tokens_reused", "Prompt tokens from the prefix cache", &self.reused_tokens),
            ("key_generated_tokens", "Tokens generated for a key", &self.generated_tokens),
        ] {
            registry.register(name, help, family.clone());
        }
    }

    /// The counters of the key with this name.
    pub(super) fn of(&self, name: &str) -> OfKey {
        let of = |family: &Family<Label, Counter>| family.get_or_create(&[("key", name.to_owned())]).clone();
        OfKey {
            requests: of(&self.requests),
            prompt_tokens: of(&self.prompt_tokens),
            reused_tokens: of(&self.reused_tokens),
            generated_tokens: of(&self.generated_tokens),
        }
    }
}

impl OfKey {
    pub(super) fn token(&self) {
        self.generated_tokens.inc();
    }

    pub(super) fn prompt(&self, usage: &Usage) {
        self.prompt_tokens.inc_by(usage.prompt_tokens as u64);
        self.reused_tokens.inc_by(usage.reused_tokens as u64);
    }

    pub(super) fn end(&self) {
        self.requests.inc();
    }
}
