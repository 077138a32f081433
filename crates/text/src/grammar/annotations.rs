//! Keywords that assert nothing: they describe a schema to people, editors, forms and code generators.

/// The keywords by who defines them. Definitions are among them, because only references read them.
const ANNOTATIONS: [&[&str]; 7] = [
    // JSON Schema, and where definitions are.
    &[
        "$comment",
        "$defs",
        "$schema",
        "components",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    ],
    // OpenAPI.
    &["discriminator", "example", "externalDocs", "xml"],
    // Visual Studio Code.
    &[
        "allowComments",
        "allowTrailingCommas",
        "defaultSnippets",
        "deprecationMessage",
        "doNotSuggest",
        "editPresentation",
        "enumDescriptions",
        "enumItemLabels",
        "enumSortTexts",
        "errorMessage",
        "ignoreSync",
        "markdownDeprecationMessage",
        "markdownDescription",
        "markdownEnumDescriptions",
        "order",
        "patternErrorMessage",
        "scope",
        "suggestSortText",
        "tags",
    ],
    // Gemini.
    &["propertyOrdering"],
    // Forms and validators.
    &["$async", "enumNames", "propertyOrder"],
    // pydantic 1.
    &["env", "env_names"],
    // Code generators.
    &["existingJavaType", "goJSONSchema", "javaEnumNames", "javaName", "javaType", "tsEnumNames", "tsType"],
];

/// Starts of keywords that are extensions: OpenAPI's, those of react-jsonschema-form, and Standard Schema's.
const EXTENSIONS: [&str; 3] = ["x-", "ui:", "~"];

/// Whether a keyword asserts nothing.
pub(super) fn is_annotation(key: &str) -> bool {
    // `x-guidance` would be a setting of llguidance.
    let is_extension = key != "x-guidance" && EXTENSIONS.iter().any(|start| key.starts_with(start));
    is_extension || ANNOTATIONS.iter().any(|keywords| keywords.contains(&key))
}
