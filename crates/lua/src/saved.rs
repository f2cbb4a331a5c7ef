//! What a script leaves to its successor: plain values, copied out of one Lua state and into another.

use mlua::{Lua, Table, Value};

/// Most tables within tables.
const DEEPEST: usize = 32;
/// Most values of all, and most bytes of their strings.
const MOST_VALUES: usize = 4_000_000;
const MOST_BYTES: usize = 64 << 20;

/// What may still be kept.
struct Left {
    values: usize,
    bytes: usize,
}

/// A plain value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Saved {
    Boolean(bool),
    Number(f64),
    Text(Vec<u8>),
    Table(Vec<(Self, Self)>),
}

impl Saved {
    /// Copies a value.
    ///
    /// # Errors
    ///
    /// There is a value within it that cannot be copied, or too many.
    pub(crate) fn of(value: &Value) -> Result<Self, String> {
        Self::copy(value, 0, &mut Left { values: MOST_VALUES, bytes: MOST_BYTES })
    }

    fn copy(value: &Value, depth: usize, left: &mut Left) -> Result<Self, String> {
        let values = left.values.checked_sub(1);
        left.values = values.ok_or_else(|| format!("save: more than {MOST_VALUES} values"))?;
        match value {
            Value::Boolean(value) => Ok(Self::Boolean(*value)),
            Value::Integer(value) => Ok(Self::Number(*value as f64)),
            Value::Number(value) => Ok(Self::Number(*value)),
            Value::String(text) => {
                let bytes = left.bytes.checked_sub(text.as_bytes().len());
                left.bytes = bytes.ok_or_else(|| format!("save: strings of more than {MOST_BYTES} bytes"))?;
                Ok(Self::Text(text.as_bytes().to_vec()))
            }
            Value::Table(_) if depth == DEEPEST => {
                Err(format!("save: more than {DEEPEST} tables within each other"))
            }
            Value::Table(table) => {
                let mut rows = Vec::new();
                for row in table.pairs::<Value, Value>() {
                    let (key, value) = row.map_err(|error| format!("save: {error}"))?;
                    rows.push((Self::copy(&key, depth + 1, left)?, Self::copy(&value, depth + 1, left)?));
                }
                Ok(Self::Table(rows))
            }
            other => Err(format!(
                "save: a {} cannot be kept; expected tables, numbers, strings and booleans",
                other.type_name()
            )),
        }
    }

    /// Makes the value again, in another state.
    pub(crate) fn to_lua(&self, lua: &Lua) -> mlua::Result<Value> {
        Ok(match self {
            Self::Boolean(value) => Value::Boolean(*value),
            Self::Number(value) => Value::Number(*value),
            Self::Text(text) => Value::String(lua.create_string(text)?),
            Self::Table(rows) => {
                let table: Table = lua.create_table()?;
                for (key, value) in rows {
                    table.raw_set(key.to_lua(lua)?, value.to_lua(lua)?)?;
                }
                Value::Table(table)
            }
        })
    }
}
