//! Responses that requests can continue by their id.
//!
//! # Responses are kept in memory, within a bound
//!
//! Clients continue a conversation by `previous_response_id`, or name its items by `item_reference`, unless they send
//! `"store": false`. So the server keeps what a request and its reply contain, until other responses need the space: the
//! oldest of the tenant that uses most are dropped first. *Nothing is written to a disk, and a tenant sees only its own.*

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;

/// A response with the conversation that it answers.
#[derive(Debug)]
pub(super) struct Kept {
    /// The JSON of each item before the reply; each has an id.
    pub(super) input: Vec<Arc<str>>,
    /// The JSON of each item of the reply, with its id.
    pub(super) output: Vec<(String, Arc<str>)>,
    /// The JSON of the response.
    pub(super) response: String,
}

impl Kept {
    /// The items of the conversation with the reply.
    pub(super) fn items(&self) -> impl Iterator<Item = &Arc<str>> {
        self.input.iter().chain(self.output.iter().map(|(_, item)| item))
    }

    /// Items that several responses have in common count for each.
    fn bytes(&self) -> usize {
        self.items().map(|item| item.len()).sum::<usize>() + self.response.len()
    }
}

/// The responses of all tenants.
#[derive(Debug)]
pub(crate) struct KeptResponses {
    /// The most bytes of JSON; 0 if the server keeps none.
    most: usize,
    tenants: Mutex<HashMap<u64, OfTenant>>,
}

#[derive(Debug, Default)]
struct OfTenant {
    responses: HashMap<String, (u64, Arc<Kept>)>,
    /// The ids of the responses in the order of their last use.
    by_use: BTreeMap<u64, String>,
    /// The items of replies by their ids.
    items: HashMap<String, Arc<str>>,
    bytes: usize,
    uses: u64,
}

impl KeptResponses {
    pub(crate) fn new(most: usize) -> KeptResponses {
        KeptResponses { most, tenants: Mutex::default() }
    }

    /// Whether the server keeps responses.
    pub(super) fn is_on(&self) -> bool {
        self.most > 0
    }

    /// Keeps a response. One that is larger than all space is not kept.
    pub(super) fn keep(&self, tenant: u64, id: String, kept: Kept) {
        let bytes = kept.bytes();
        if bytes > self.most {
            return;
        }
        self.of(|tenants| {
            tenants.entry(tenant).or_default().add(id, Arc::new(kept), bytes);
            while tenants.values().map(|of| of.bytes).sum::<usize>() > self.most {
                let Some(largest) = tenants.values_mut().max_by_key(|of| of.bytes) else { break };
                let Some((_, oldest)) = largest.by_use.pop_first() else { break };
                largest.remove(&oldest);
            }
            tenants.retain(|_, of| !of.responses.is_empty());
        });
    }

    pub(super) fn get(&self, tenant: u64, id: &str) -> Option<Arc<Kept>> {
        self.of(|tenants| tenants.get_mut(&tenant)?.used(id))
    }

    /// The JSON of an item of a reply.
    pub(super) fn item(&self, tenant: u64, id: &str) -> Option<Arc<str>> {
        self.of(|tenants| tenants.get(&tenant)?.items.get(id).cloned())
    }

    /// Whether there was one.
    pub(super) fn delete(&self, tenant: u64, id: &str) -> bool {
        self.of(|tenants| tenants.get_mut(&tenant).is_some_and(|of| of.remove(id)))
    }

    fn of<T>(&self, with: impl FnOnce(&mut HashMap<u64, OfTenant>) -> T) -> T {
        with(&mut self.tenants.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl OfTenant {
    fn add(&mut self, id: String, kept: Arc<Kept>, bytes: usize) {
        self.uses += 1;
        self.bytes += bytes;
        self.items.extend(kept.output.iter().cloned());
        self.by_use.insert(self.uses, id.clone());
        self.responses.insert(id, (self.uses, kept));
    }

    fn used(&mut self, id: &str) -> Option<Arc<Kept>> {
        let (last, kept) = self.responses.get_mut(id)?;
        self.uses += 1;
        self.by_use.remove(last);
        self.by_use.insert(self.uses, id.to_owned());
        *last = self.uses;
        Some(kept.clone())
    }

    fn remove(&mut self, id: &str) -> bool {
        let Some((last, kept)) = self.responses.remove(id) else { return false };
        self.by_use.remove(&last);
        self.bytes -= kept.bytes();
        for (id, _) in &kept.output {
            self.items.remove(id);
        }
        true
    }
}

/// Why there is no response of an id.
pub(super) fn not_kept(id: &str) -> String {
    format!(
        "this server keeps no response {id:?}: it was sent with \"store\": false, was dropped for newer ones, or is another's"
    )
}

/// An item as it is kept: with an id, which a client may have left out.
pub(super) fn with_id(mut item: Value, new_id: impl FnOnce(&str) -> String) -> Value {
    let prefix = match item["type"].as_str() {
        None | Some("message") => "msg",
        Some("function_call") => "fc",
        Some("reasoning") => "rs",
        Some(_) => "item",
    };
    if let Some(fields) = item.as_object_mut()
        && !fields.get("id").is_some_and(Value::is_string)
    {
        fields.insert("id".to_owned(), new_id(prefix).into());
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(id: &str, bytes: usize) -> Kept {
        let output = vec![(format!("msg_{id}"), "o".repeat(bytes).into())];
        Kept { input: Vec::new(), output, response: String::new() }
    }

    #[test]
    fn the_oldest_of_the_largest_tenant_goes_first() {
        let responses = KeptResponses::new(100);
        responses.keep(1, "a".to_owned(), kept("a", 40));
        responses.keep(2, "a".to_owned(), kept("x", 10));
        responses.keep(1, "b".to_owned(), kept("b", 40));
        assert!(responses.get(1, "a").is_some() && responses.item(1, "msg_b").is_some());
        assert!(responses.get(2, "b").is_none() && responses.item(2, "msg_b").is_none());
        // "a" was used last.
        responses.keep(1, "c".to_owned(), kept("c", 40));
        let found = ["a", "b", "c"].map(|id| responses.get(1, id).is_some());
        assert_eq!((found, responses.get(2, "a").is_some()), ([true, false, true], true));
        assert!(responses.item(1, "msg_b").is_none());
        // Another tenant cannot drive out what it does not exceed.
        responses.keep(2, "b".to_owned(), kept("y", 90));
        assert_eq!((responses.get(2, "b").is_some(), responses.get(1, "a").is_some()), (false, true));
        responses.keep(1, "d".to_owned(), kept("d", 101));
        assert!(responses.get(1, "d").is_none() && responses.get(1, "c").is_some());
        assert!(responses.delete(1, "c") && !responses.delete(1, "c") && !responses.delete(3, "c"));
    }

    #[test]
    fn items_have_ids() {
        let id = |item: Value| with_id(item, |prefix| format!("{prefix}_1"))["id"].clone();
        assert_eq!(id(serde_json::json!({"role": "user", "content": "x"})), "msg_1");
        assert_eq!(id(serde_json::json!({"type": "function_call", "id": null})), "fc_1");
        assert_eq!(id(serde_json::json!({"type": "reasoning", "id": "rs_9"})), "rs_9");
    }
}
