//! Functions in namespaces: the model sees one name, the client two.

use std::collections::BTreeMap;

/// Between a namespace and a function.
const SEPARATOR: &str = "__";

/// The name that the model sees of a function in this namespace.
pub(crate) fn qualified(namespace: Option<&str>, name: &str) -> String {
    match namespace {
        None | Some("") => name.to_owned(),
        Some(namespace) if namespace.ends_with(SEPARATOR) => format!("{namespace}{name}"),
        Some(namespace) => format!("{namespace}{SEPARATOR}{name}"),
    }
}

/// The namespaces of functions, and their names within, by the names that the model sees.
#[derive(Debug, Clone, Default)]
pub(crate) struct Namespaces(BTreeMap<String, (String, String)>);

impl Namespaces {
    /// Adds a function, and returns the name that the model sees.
    pub(crate) fn add(&mut self, namespace: &str, name: &str) -> String {
        let seen = qualified(Some(namespace), name);
        self.0.insert(seen.clone(), (namespace.to_owned(), name.to_owned()));
        seen
    }

    /// Adds functions of other namespaces.
    pub(crate) fn extend(&mut self, more: Namespaces) {
        self.0.extend(more.0);
    }

    /// The namespace of a function and its name within, or the name alone.
    pub(crate) fn split(&self, seen: &str) -> (Option<String>, String) {
        match self.0.get(seen) {
            Some((namespace, name)) => (Some(namespace.clone()), name.clone()),
            None => (None, seen.to_owned()),
        }
    }

    /// The name that the model sees of the only function with this name in any namespace.
    pub(crate) fn only(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(_, (_, inner))| inner == name).map(|(seen, _)| seen.as_str());
        found.next().filter(|_| found.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_back() {
        let mut namespaces = Namespaces::default();
        for (namespace, name, seen) in [
            ("mcp__files", "list_dir", "mcp__files__list_dir"),
            ("mcp__files__", "read", "mcp__files__read"),
            ("crm", "list_dir", "crm__list_dir"),
        ] {
            assert_eq!(namespaces.add(namespace, name), seen);
            assert_eq!(namespaces.split(seen), (Some(namespace.to_owned()), name.to_owned()));
        }
        assert_eq!(namespaces.split("list_dir"), (None, "list_dir".to_owned()));
        assert_eq!((namespaces.only("read"), namespaces.only("list_dir")), (Some("mcp__files__read"), None));
        assert_eq!((qualified(None, "f"), qualified(Some(""), "f")), ("f".to_owned(), "f".to_owned()));
    }
}
