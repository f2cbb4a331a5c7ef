//! `/api/v1/openapi.json`: what can be asked for over HTTP, and what rows look like. It is made of the types of filters and rows, and
//! of their documentation; so is docs/api.md, the reference of the control socket.

use std::sync::LazyLock;

use axum::http::header;
use axum::response::IntoResponse;
use control::api::schema::{Schemas, plain};
use serde_json::{Map, Value, json};

use super::api::{JSON_LINES, PRIVATE};
use super::flows::BusiestFlows;
use super::snapshot::Snapshot;
use crate::features::FeatureSettings;

static TEXT: LazyLock<String> = LazyLock::new(|| document().to_string());

pub(super) async fn openapi() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], TEXT.as_str())
}

/// Makes the document.
fn document() -> Value {
    let mut schemas = Schemas::default();
    let mut paths = Map::new();
    let mut add = |path: String, operation: Value| paths.insert(path, json!({"get": operation}));
    for shape in schemas.add_shown().iter().filter(|shape| !PRIVATE.contains(&shape.name.as_str())) {
        let filter = schemas.get(&shape.filter).cloned().unwrap_or_default();
        let rows = Schemas::reference(&shape.row);
        add(
            format!("/api/v1/{}", shape.name),
            operation(&shape.about, &parameters(&filter), JSON_LINES, &rows),
        );
    }
    for shown in FeatureSettings::shown() {
        let row = Schemas::reference(&(shown.row)(&mut schemas));
        add(
            format!("/api/v1/{}", shown.name),
            operation(&format!("{}.", shown.about), &json!([]), JSON_LINES, &row),
        );
    }
    let names = json!({"type": "object", "properties": {
        "version": {"type": "integer", "description": "The version of the protocol."},
        "show": {"type": "array", "items": {"type": "string"}, "description": "The names of all tables."},
    }});
    add("/api/v1".to_owned(), operation("The names of all tables.", &json!([]), "application/json", &names));
    let state = Schemas::reference(&schemas.add::<Snapshot>());
    let about = "The state of the router once a second, as server-sent events.";
    add("/api/v1/events".to_owned(), operation(about, &json!([]), "text/event-stream", &state));
    let flows = Schemas::reference(&schemas.add::<BusiestFlows>());
    let about = "The busiest flows of what comes in, sampled for a second.";
    add("/api/v1/flows".to_owned(), operation(about, &json!([]), "application/json", &flows));
    let text = json!({"type": "string"});
    add("/metrics".to_owned(), operation("Metrics for Prometheus.", &json!([]), "text/plain", &text));
    let about = "What a router has and does, one line of JSON for each row. It only shows; nothing is changed over HTTP.";
    json!({
        "openapi": "3.1.0",
        "info": {"title": "Brickway", "version": env!("CARGO_PKG_VERSION"), "description": about, "license": {"name": "MIT OR Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": schemas.to_json(),
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The word of token_file."},
                "basic": {"type": "http", "scheme": "basic", "description": "The same word as password, for browsers."},
            },
        },
        "security": [{}, {"bearer": []}, {"basic": []}],
    })
}

/// Describes a request.
fn operation(about: &str, parameters: &Value, content: &str, schema: &Value) -> Value {
    let error = |when: &str| {
        let schema = json!({"type": "object", "properties": {"error": {"type": "string"}}});
        json!({"description": when, "content": {"application/json": {"schema": schema}}})
    };
    json!({
        "summary": about,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The rows, or what was asked for.", "content": {content: {"schema": schema}}},
            "400": error("There is a mistake in the request."),
            "409": error("The router has no answer, and says why."),
            "429": error("It is answered once a second."),
            "503": error("Others are being answered."),
        },
    })
}

/// Makes the parameters of a query of the fields of a filter.
fn parameters(filter: &Value) -> Value {
    let is_required =
        |name: &str| filter["required"].as_array().is_some_and(|all| all.iter().any(|of| of == name));
    let parameter = |(name, schema): (&String, &Value)| {
        let about = plain(schema["description"].as_str().unwrap_or_default());
        json!({"name": name, "in": "query", "required": is_required(name), "description": about, "schema": schema})
    };
    filter["properties"].as_object().into_iter().flatten().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use std::fmt::Write;

    use control::api::{Action, Show};

    use super::*;
    use crate::table::wrapped;

    const WIDTH: usize = 100;

    const HEAD: &str = "\
# The JSON of the control socket

This page is for programs that ask a running router. It is made of the program's types, as `/api/v1/openapi.json` is
([see.md](see.md#http-api)).

The socket is `/run/brickway/NUMBER.sock`, with the number that `stat -Lc %i /proc/self/ns/net` prints;
[security.md](security.md#control-socket) has who may connect. A request is one line. The answer is a head, a line for each row, and
an end with their number:

```
$ echo '{\"version\":1,\"show\":\"drops\",\"filter\":{\"containing\":\"route\"}}' | socat - UNIX:/run/brickway/NUMBER.sock
{\"version\":1,\"ok\":\"drops\"}
{\"row\":{\"element\":\"rt4\",\"class\":\"FIBLookup\",\"reason\":\"no route\",\"packets\":5}}
{\"end\":1}
```

Instead of the head, or between rows, there may be `{\"version\":1,\"error\":\"...\"}`, which ends the answer. A name, a field or a
version that is not known is an error. Fields may be added to rows; a client leaves those that it does not know.

## What can be shown
";

    /// Writes an item of a list, in lines that are not too long.
    fn item(text: &mut String, indent: &str, words: &str) {
        for (number, line) in wrapped(words, WIDTH - indent.len() - 2).iter().enumerate() {
            let mark = if number == 0 { "-" } else { " " };
            writeln!(text, "{indent}{mark} {line}").unwrap();
        }
    }

    /// Returns a type for people.
    fn kind(schema: &Value) -> String {
        if let Some(name) = Schemas::name_in(schema) {
            return format!("[{name}](#{})", name.to_lowercase());
        }
        let several = ["oneOf", "anyOf", "allOf"].iter().find_map(|of| schema[of].as_array());
        if let Some(several) = several {
            let mut kinds: Vec<String> = several.iter().map(kind).collect();
            // What may be null says so last.
            kinds.sort_by_key(|kind| kind == "null");
            return kinds.join(" or ");
        }
        let types = match &schema["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            Value::String(name) => vec![name.as_str()],
            _ => return "anything".to_owned(),
        };
        let one = |name: &&str| match *name {
            "array" if schema["prefixItems"].is_array() => {
                let items: Vec<String> = schema["prefixItems"].as_array().unwrap().iter().map(kind).collect();
                format!("[{}]", items.join(", "))
            }
            "array" => format!("list of {}", kind(&schema["items"])),
            "object" if schema["additionalProperties"].is_object() => {
                format!("object of {}", kind(&schema["additionalProperties"]))
            }
            name => name.to_owned(),
        };
        types.iter().map(one).collect::<Vec<_>>().join(" or ")
    }

    /// Writes the fields of a schema.
    fn fields(text: &mut String, indent: &str, schema: &Value) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            // What may be null has its documentation at its type.
            let parts = field["oneOf"].as_array().into_iter().flatten();
            let about = parts.chain([field]).find_map(|part| part["description"].as_str());
            let about = plain(about.unwrap_or_default());
            let kind = field["enum"][0].as_str().map_or_else(|| kind(field), |word| format!("`\"{word}\"`"));
            item(text, indent, format!("`{name}`, {kind}: {about}").trim_end_matches([':', ' ']));
        }
    }

    /// Writes the variants of a schema, each with its fields.
    fn variants(text: &mut String, schema: &Value) {
        for variant in schema["oneOf"].as_array().into_iter().flatten() {
            item(text, "", &plain(variant["description"].as_str().unwrap_or_default()));
            // A variant may be another type and its tag.
            let parts = variant["allOf"].as_array().cloned().unwrap_or_else(|| vec![variant.clone()]);
            for part in &parts {
                match Schemas::name_in(part) {
                    Some(name) => {
                        item(text, "  ", &format!("the fields of [{name}](#{})", name.to_lowercase()));
                    }
                    None => fields(text, "  ", part),
                }
            }
        }
    }

    /// Makes docs/api.md.
    fn reference() -> String {
        let mut schemas = Schemas::default();
        let mut text = HEAD.to_owned();
        for shape in schemas.add_shown() {
            let mut about = shape.about;
            if PRIVATE.contains(&shape.name.as_str()) {
                about += " Not over HTTP.";
            }
            write!(text, "\n### {}\n\n{}\n\n", shape.name, wrapped(&about, WIDTH).join("\n")).unwrap();
            item(&mut text, "", &format!("Rows: [{}](#{})", shape.row, shape.row.to_lowercase()));
            let filter = schemas.get(&shape.filter).unwrap();
            if filter["properties"].as_object().is_some_and(|all| !all.is_empty()) {
                item(&mut text, "", "Filter:");
                fields(&mut text, "  ", filter);
            }
        }
        for shown in FeatureSettings::shown() {
            let row = (shown.row)(&mut schemas);
            write!(
                text,
                "\n### {}\n\n{}.\n\n- Rows: [{row}](#{})\n",
                shown.name,
                shown.about,
                row.to_lowercase()
            )
            .unwrap();
        }
        text += "\n## What can be done\n\nBy `do` in the place of `show`. The answer has rows of text.\n\n";
        let action = schemas.add::<Action>();
        variants(&mut text, schemas.get(&action).unwrap());
        text += "\n## Rows, and what is in them\n";
        let all = schemas.to_json();
        let shown = Schemas::default().add_shown().into_iter();
        let others: Vec<String> = shown.map(|shape| shape.filter).chain([action]).collect();
        for (name, schema) in all.as_object().unwrap().iter().filter(|(name, _)| !others.contains(name)) {
            let about = plain(schema["description"].as_str().unwrap_or_default());
            write!(text, "\n### {name}\n\n{}\n\n", wrapped(&about, WIDTH).join("\n")).unwrap();
            fields(&mut text, "", schema);
            variants(&mut text, schema);
        }
        text
    }

    #[test]
    fn the_reference_in_docs_is_that_of_the_program() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/api.md");
        let made = reference();
        let long: Vec<&str> = made.lines().filter(|line| line.chars().count() > 2 * WIDTH).collect();
        assert!(long.is_empty(), "{long:?}");
        if std::env::var_os("BRICKWAY_UPDATE").is_some_and(|value| value == "1") {
            std::fs::write(path, &made).unwrap();
        }
        let is_same = std::fs::read_to_string(path).unwrap_or_default() == made;
        assert!(
            is_same,
            "docs/api.md is of other types: run BRICKWAY_UPDATE=1 cargo test -p brickway --lib reference"
        );
    }

    #[test]
    fn the_document_has_a_path_for_all_that_is_shown_and_refers_to_what_is_there() {
        let document = document();
        let private = |name: &&&str| !PRIVATE.contains(*name);
        for name in Show::NAMES.iter().filter(private).chain(&["acl", "ipsec", "events"]) {
            let operation = &document["paths"][format!("/api/v1/{name}")]["get"];
            assert!(
                operation["summary"].as_str().is_some_and(|about| about.ends_with('.')),
                "{name}: {operation}"
            );
        }
        assert!(document["paths"].get("/api/v1/capture").is_none());
        let parameters = &document["paths"]["/api/v1/route"]["get"]["parameters"];
        let address = parameters.as_array().unwrap().iter().find(|known| known["name"] == "address").unwrap();
        assert!(address["required"] == true && address["description"] == "The destination.", "{address}");
        let text = document.to_string();
        for name in text.split("#/components/schemas/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(document["components"]["schemas"].get(name).is_some(), "{name}");
        }
    }
}
