//! What requests and rows look like in JSON, as schemas of OpenAPI 3.1: made of their types and of their documentation.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::request::Show;
use super::rows::{
    CaptureRow, ChangeRow, ClusterRow, CostRow, CounterRow, DriftRow, DropRow, ElementRow, HandlerRow,
    HistoryRow, LogRow, LookupRow, NeighbourRow, NextHopRow, PortRow, PuntRow, QueueRow, RouteRow, SystemRow,
    TextRow, WorkerRow,
};

/// Where schemas stand in a document.
const PLACE: &str = "#/components/schemas/";

/// Schemas of types, by name.
#[derive(Clone, Debug, Default)]
pub struct Schemas(BTreeMap<String, Value>);

/// Something that can be shown: its name, what it is, and the schemas of its filter and of a row.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Its name in requests.
    pub name: String,
    /// What it is, in a sentence.
    pub about: String,
    /// The name of its filter's schema.
    pub filter: String,
    /// That of its rows'.
    pub row: String,
}

impl Schemas {
    /// Adds the schema of a type, and those that it refers to. Returns its name.
    pub fn add<T: ToSchema>(&mut self) -> String {
        let mut all = vec![(T::name().into_owned(), T::schema())];
        T::schemas(&mut all);
        for (name, schema) in all {
            // Plain data has nothing that could not be written.
            self.0.insert(name, serde_json::to_value(schema).unwrap_or_default());
        }
        T::name().into_owned()
    }

    /// Returns the schema of a name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Returns all of them, for a document.
    pub fn to_json(&self) -> Value {
        Value::Object(
            self.0.iter().map(|(name, schema)| (name.clone(), schema.clone())).collect::<Map<_, _>>(),
        )
    }

    /// Returns a reference to the schema of a name.
    pub fn reference(name: &str) -> Value {
        json!({"$ref": format!("{PLACE}{name}")})
    }

    /// Returns the name in a reference.
    pub fn name_in(schema: &Value) -> Option<&str> {
        schema["$ref"].as_str()?.strip_prefix(PLACE)
    }

    /// Adds the schemas of all that [`Show`] shows. Returns what that is.
    pub fn add_shown(&mut self) -> Vec<Shape> {
        let show = serde_json::to_value(<Show as utoipa::PartialSchema>::schema()).unwrap_or_default();
        let mut filters = Vec::new();
        <Show as ToSchema>::schemas(&mut filters);
        self.0.extend(
            filters
                .into_iter()
                .map(|(name, schema)| (name, serde_json::to_value(schema).unwrap_or_default())),
        );
        let rows: [fn(&mut Schemas) -> String; Show::NAMES.len()] = [
            Self::add::<PortRow>,
            Self::add::<HistoryRow>,
            Self::add::<RouteRow>,
            Self::add::<LookupRow>,
            Self::add::<NeighbourRow>,
            Self::add::<NextHopRow>,
            Self::add::<WorkerRow>,
            Self::add::<CostRow>,
            Self::add::<QueueRow>,
            Self::add::<DropRow>,
            Self::add::<PuntRow>,
            Self::add::<ElementRow>,
            Self::add::<SystemRow>,
            Self::add::<TextRow>,
            Self::add::<DriftRow>,
            Self::add::<ChangeRow>,
            Self::add::<ClusterRow>,
            Self::add::<CounterRow>,
            Self::add::<CounterRow>,
            Self::add::<TextRow>,
            Self::add::<HandlerRow>,
            Self::add::<CaptureRow>,
            Self::add::<CaptureRow>,
            Self::add::<LogRow>,
        ];
        let variants = show["oneOf"].as_array().cloned().unwrap_or_default();
        let shape = |(variant, row): (&Value, fn(&mut Schemas) -> String)| Shape {
            name: variant["properties"]["show"]["enum"][0].as_str().unwrap_or_default().to_owned(),
            about: plain(variant["description"].as_str().unwrap_or_default()),
            filter: Self::name_in(&variant["properties"]["filter"]).unwrap_or_default().to_owned(),
            row: row(self),
        };
        variants.iter().zip(rows).map(shape).collect()
    }
}

/// Returns documentation without its links: `text [`Name`](path), more` is `text, more`, and in one line.
pub fn plain(text: &str) -> String {
    let mut words = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once('[') {
        words += before.trim_end_matches([' ', ':']);
        match link.split_once("](").and_then(|(name, path)| Some((name, path.split_once(')')?.1))) {
            Some((_, behind)) => rest = behind,
            None => {
                words += "[";
                rest = link;
            }
        }
    }
    (words + rest).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_that_is_shown_has_its_schemas() {
        let mut schemas = Schemas::default();
        let shapes = schemas.add_shown();
        let names: Vec<&str> = shapes.iter().map(|shape| shape.name.as_str()).collect();
        assert_eq!(names, Show::NAMES);
        for Shape { name, about, filter, row } in &shapes {
            assert!(!about.is_empty() && !about.contains('['), "{name}: {about}");
            assert!(schemas.get(filter).is_some() && schemas.get(row).is_some(), "{name}: {filter} {row}");
        }
        let of = |name: &str| shapes.iter().find(|shape| shape.name == name).unwrap();
        assert_eq!((of("drops").filter.as_str(), of("drops").row.as_str()), ("DropFilter", "DropRow"));
        assert_eq!(of("route").about, "What the workers do with packets to an address, one.");
        let port = schemas.get("PortRow").unwrap();
        assert_eq!(
            port["properties"]["mtu"]["description"],
            "Largest packet, in bytes, without the Ethernet header."
        );
        // Whatever a schema refers to is there.
        let text = schemas.to_json().to_string();
        for name in text.split(PLACE).skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(schemas.get(name).is_some(), "{name}");
        }
    }
}
