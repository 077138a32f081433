//! The cost of a schema: llguidance distributes alternatives, copying the other parts of a schema, and the time of an
//! object grows with the square of its properties.

use serde_json::Value;

use super::pointer;

/// References that are followed to count alternatives, one behind another.
const MAX_REFERENCES: u64 = 8;
/// More than any schema may have.
const MANY: u64 = 1 << 20;

/// The size of a schema, and the alternatives that it becomes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Weight {
    pub(super) alternatives: u64,
    pub(super) size: u64,
    /// The sum, over all objects, of the square of the number of properties.
    pub(super) squares: u64,
}

impl Weight {
    pub(super) const ONE: Weight = Weight { alternatives: 1, size: 1, squares: 0 };

    /// Adds a schema of a part of the value, whose alternatives are its own.
    pub(super) fn add(&mut self, part: Weight) {
        self.size += part.size;
        self.squares += part.squares;
    }

    /// One of several schemas.
    pub(super) fn either(of: &[Weight]) -> Weight {
        let mut sum = Weight::default();
        for weight in of {
            sum.alternatives += weight.alternatives;
            sum.add(*weight);
        }
        sum
    }

    /// All of these schemas, and the copies that this takes.
    pub(super) fn combined(parts: &[Weight]) -> (Weight, u64) {
        if let [one] = parts {
            return (*one, 0);
        }
        let product = |factor: u64, part: &Weight| factor.saturating_mul(part.alternatives.max(1));
        let alternatives = parts.iter().fold(1, product);
        let sum = Weight::either(parts);
        let size = alternatives.saturating_mul(sum.size);
        // Parts of the value that several schemas have are combined in turn.
        let pairs = |(i, a): (usize, &Weight)| parts[..i].iter().map(|b| a.size.saturating_mul(b.size)).sum::<u64>();
        let pairs: u64 = parts.iter().enumerate().map(pairs).sum();
        // Two objects become one.
        let squares = alternatives.saturating_mul(2 * sum.squares);
        (Weight { alternatives, size, squares }, size.saturating_add(pairs))
    }

    /// The target of a reference, which may not have been read yet. `steps` bounds what is looked at, for all targets.
    pub(super) fn of_target(root: &Value, target: &Value, steps: &mut u64) -> Weight {
        let alternatives = alternatives(root, target, MAX_REFERENCES, steps);
        let mut weight = Weight { alternatives, size: 0, squares: 0 };
        let mut rest = vec![target];
        while let Some(value) = rest.pop() {
            if *steps == 0 {
                return Weight { alternatives: MANY, size: MANY, squares: MANY };
            }
            (*steps, weight.size) = (*steps - 1, weight.size + 1);
            match value {
                Value::Array(items) => rest.extend(items),
                Value::Object(object) => {
                    weight.squares += object.len() as u64 * object.len() as u64;
                    rest.extend(object.values());
                }
                _ => {}
            }
        }
        weight
    }
}

/// The alternatives of a schema as it stands, at least one; many where there are more references or steps than are
/// followed.
fn alternatives(root: &Value, schema: &Value, references: u64, steps: &mut u64) -> u64 {
    let Value::Object(keywords) = schema else { return 1 };
    let mut product = 1_u64;
    for (key, value) in keywords {
        let list = value.as_array().map_or(&[][..], Vec::as_slice);
        let each = list.iter().map(|schema| alternatives(root, schema, references, steps));
        let factor = match key.as_str() {
            "anyOf" | "oneOf" => each.fold(0, u64::saturating_add),
            "allOf" => each.fold(1, u64::saturating_mul),
            "enum" | "type" => list.len() as u64,
            "$ref" if references == 0 || *steps == 0 => MANY,
            "$ref" => {
                *steps -= 1;
                let pointer = value.as_str().and_then(pointer::of_reference);
                let target = pointer.and_then(|pointer| pointer::find(root, &pointer));
                target.map_or(1, |target| alternatives(root, target, references - 1, steps))
            }
            _ => 1,
        };
        product = product.saturating_mul(factor.max(1));
    }
    product
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn alternatives_multiply() {
        let weight = |alternatives, size, squares| Weight { alternatives, size, squares };
        assert_eq!(Weight::combined(&[weight(1000, 9000, 9)]), (weight(1000, 9000, 9), 0));
        let (combined, work) = Weight::combined(&[weight(2, 5, 1), weight(3, 7, 4)]);
        assert_eq!((combined, work), (weight(6, 72, 60), 72 + 35));
        assert_eq!(Weight::combined(&[Weight::ONE; 3]), (weight(1, 3, 0), 6));
        assert_eq!(Weight::combined(&[weight(2, 2, 0); 70]).0.alternatives, u64::MAX);
        assert_eq!(Weight::either(&[weight(2, 5, 1), weight(3, 7, 4)]), weight(5, 12, 5));
        let root = json!({"anyOf": [{"type": ["null", "string"]}, {"enum": [1, 2, 3]}, {"$ref": "#/$defs/a"}],
            "$defs": {"a": {"allOf": [{"enum": [1, 2]}, {"enum": [1, 2]}]}}});
        let of_target = |root: &Value, steps: u64| Weight::of_target(root, root, &mut { steps });
        assert_eq!(of_target(&root, 100).alternatives, 2 + 3 + 4);
        assert_eq!(of_target(&root, 10), weight(MANY, MANY, MANY));
        assert_eq!(of_target(&json!({"$ref": "#"}), 100).alternatives, MANY);
        let circles = json!({"anyOf": vec![json!({"$ref": "#"}); 1_000]});
        assert_eq!(of_target(&circles, 100_000), weight(MANY, MANY, MANY));
    }
}
