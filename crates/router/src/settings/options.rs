//! Options, each said once: [`options!`] makes of a section's options its struct, how it is read from a file, from the text
//! of a flag or of `brickway set`, how it is printed, and its part of `examples/brickway.toml`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use toml::de::DeValue;

/// An option as all speak of it: the settings file, the command line, the example.
#[derive(Debug)]
pub(crate) struct Opt {
    /// Its section, empty for options above all sections.
    pub(crate) section: &'static str,
    pub(crate) key: &'static str,
    /// What it means, line by line.
    pub(crate) doc: &'static [&'static str],
    /// Its default as TOML, or where it has none an example.
    pub(crate) example: &'static str,
    /// The flag of the command line that sets it, and the name of the flag's value.
    pub(crate) flag: Option<(&'static str, &'static str)>,
    /// What the flag does, if `doc` does not say that.
    pub(crate) flag_help: &'static str,
    /// Whether it can change while the router runs.
    pub(crate) is_live: bool,
    /// Whether a text can be its value; if not, what would be.
    pub(crate) check: fn(&str) -> Result<(), String>,
}

impl Opt {
    /// Returns its name, as `workers.count`.
    pub(crate) fn name(&self) -> String {
        match self.section {
            "" => self.key.to_owned(),
            section => format!("{section}.{}", self.key),
        }
    }
}

/// What is wrong with a section whose options are right one by one: the option to blame, what it is, and what was expected.
pub(crate) type Problem = (&'static str, String, String);

/// A section of the settings.
pub(crate) trait Section {
    /// Returns its options, in the order of the file.
    fn options(&self) -> &'static [Opt];

    /// Returns their values as TOML, in the same order; `None` for one that is not set.
    fn values(&self) -> Vec<Option<String>>;

    /// Sets an option from a text without quotes. A list takes items between commas, beside those that it has.
    ///
    /// # Errors
    /// What was expected.
    fn set(&mut self, key: &str, text: &str) -> Result<(), String>;

    /// Whether the option is one of its.
    fn has(&self, option: &Opt) -> bool {
        self.options().iter().any(|known| (known.section, known.key) == (option.section, option.key))
    }

    /// Returns what is wrong with it.
    fn problem(&self) -> Option<Problem>;

    /// Returns what it says, for people: a title and a few words.
    fn summary(&self) -> Option<(&'static str, String)>;
}

/// What a section says beside its options.
pub(crate) trait About {
    /// Returns what is wrong with options that are right one by one.
    fn problem(&self) -> Option<Problem> {
        None
    }

    /// Returns what they say, for people: a title and a few words.
    fn summary(&self) -> Option<(&'static str, String)> {
        None
    }
}

/// A type that options have.
pub(crate) trait Value: Clone + Sized {
    /// Returns the value; `None` if the TOML is of another type or beyond the limits.
    fn read(toml: &DeValue<'_>, limits: Option<(f64, f64)>) -> Option<Self>;

    /// Describes what is expected.
    fn expected(limits: Option<(f64, f64)>) -> String;

    /// Returns it as TOML; `None` if it is not set.
    fn to_toml(&self) -> Option<String>;

    /// Writes a text without quotes as TOML.
    fn quote(text: &str) -> String {
        quoted(text)
    }

    /// Takes a value of the command line.
    fn take(&mut self, value: Self) {
        *self = value;
    }
}

/// Reads the text of a flag or of `brickway set`.
///
/// # Errors
/// What was expected.
pub(crate) fn of_text<T: Value>(text: &str, limits: Option<(f64, f64)>) -> Result<T, String> {
    let toml = T::quote(text);
    let value = DeValue::parse(&toml).ok().and_then(|value| T::read(value.get_ref(), limits));
    value.ok_or_else(|| format!("expected {}", T::expected(limits)))
}

impl Value for bool {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        toml.as_bool()
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        "true or false, without quotes".to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn quote(text: &str) -> String {
        text.to_owned()
    }
}

impl Value for usize {
    fn read(toml: &DeValue<'_>, limits: Option<(f64, f64)>) -> Option<Self> {
        let integer = toml.as_integer()?;
        let number = usize::from_str_radix(integer.as_str(), integer.radix()).ok()?;
        is_within(number as f64, limits).then_some(number)
    }

    fn expected(limits: Option<(f64, f64)>) -> String {
        format!("a whole number{}", range(limits))
    }

    fn to_toml(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn quote(text: &str) -> String {
        text.to_owned()
    }
}

impl Value for f64 {
    fn read(toml: &DeValue<'_>, limits: Option<(f64, f64)>) -> Option<Self> {
        let whole = toml.as_integer().filter(|integer| integer.radix() == 10);
        let text = whole.map(|integer| integer.as_str()).or(toml.as_float().map(|float| float.as_str()));
        text?.parse().ok().filter(|&number| is_within(number, limits))
    }

    fn expected(limits: Option<(f64, f64)>) -> String {
        format!("a number{}", range(limits))
    }

    fn to_toml(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn quote(text: &str) -> String {
        text.to_owned()
    }
}

fn is_within(number: f64, limits: Option<(f64, f64)>) -> bool {
    limits.is_none_or(|(least, most)| (least..=most).contains(&number))
}

fn range(limits: Option<(f64, f64)>) -> String {
    limits.map_or_else(String::new, |(least, most)| format!(" from {least} to {most}"))
}

impl Value for String {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        toml.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        "a text in quotes, not empty".to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(self)).filter(|_| !self.is_empty())
    }
}

impl Value for PathBuf {
    fn read(toml: &DeValue<'_>, limits: Option<(f64, f64)>) -> Option<Self> {
        String::read(toml, limits).map(PathBuf::from)
    }

    fn expected(limits: Option<(f64, f64)>) -> String {
        String::expected(limits)
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string_lossy()))
    }
}

impl Value for SocketAddr {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        toml.as_str()?.parse().ok()
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        "an address and a port, as in \"127.0.0.1:2620\"".to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl Item for SocketAddr {
    fn expected_list() -> String {
        "a list of addresses with their ports, as in [\"192.0.2.1:6343\"]".to_owned()
    }
}

impl Value for IpAddr {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        toml.as_str()?.parse().ok()
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        "an IP address, as in \"192.0.2.7\"".to_owned()
    }

    fn to_toml(&self) -> Option<String> {
        Some(quoted(&self.to_string()))
    }
}

impl<T: Value> Value for Option<T> {
    fn read(toml: &DeValue<'_>, limits: Option<(f64, f64)>) -> Option<Self> {
        T::read(toml, limits).map(Some)
    }

    fn expected(limits: Option<(f64, f64)>) -> String {
        T::expected(limits)
    }

    fn to_toml(&self) -> Option<String> {
        self.as_ref().and_then(T::to_toml)
    }

    fn quote(text: &str) -> String {
        T::quote(text)
    }
}

/// An item of a list.
pub(crate) trait Item: Value {
    /// Describes a list of them.
    fn expected_list() -> String;

    /// Returns the item; in a list a text may be empty.
    fn read_item(toml: &DeValue<'_>) -> Option<Self> {
        Self::read(toml, None)
    }
}

impl Item for String {
    fn expected_list() -> String {
        "a list of texts, as in [\"first\", \"second\"]".to_owned()
    }

    fn read_item(toml: &DeValue<'_>) -> Option<Self> {
        toml.as_str().map(str::to_owned)
    }
}

impl<T: Item> Value for Vec<T> {
    fn read(toml: &DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
        toml.as_array()?.iter().map(|item| T::read_item(item.get_ref())).collect()
    }

    fn expected(_limits: Option<(f64, f64)>) -> String {
        T::expected_list()
    }

    fn to_toml(&self) -> Option<String> {
        let items: Vec<String> = self.iter().filter_map(T::to_toml).collect();
        Some(format!("[{}]", items.join(", ")))
    }

    fn quote(text: &str) -> String {
        let items: Vec<String> = text.split(',').map(quoted).collect();
        format!("[{}]", items.join(", "))
    }

    fn take(&mut self, value: Self) {
        self.extend(value);
    }
}

/// Writes a text as TOML does.
pub(super) fn quoted(text: &str) -> String {
    let mut quoted = String::from('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // TOML 1.0, String: other control characters have to be escaped.
            char if char.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted + "\""
}

/// Declares words, as an option has them: their names in the file, and what they stand for. The first is the default.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All of them, by their names in the file.
            pub(crate) const WORDS: &[(&'static str, Self)] = &[$(($word, Self::$variant),)*];

            /// Its name in the file.
            pub(crate) fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }

        impl Default for $name {
            fn default() -> Self {
                Self::WORDS[0].1
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                $crate::settings::options::of_text(text, None)
            }
        }

        impl $crate::settings::options::Value for $name {
            fn read(toml: &toml::de::DeValue<'_>, _limits: Option<(f64, f64)>) -> Option<Self> {
                let text = toml.as_str()?;
                Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value)
            }

            fn expected(_limits: Option<(f64, f64)>) -> String {
                "one of ".to_owned() + &[$(concat!("\"", $word, "\"")),*].join(", ")
            }

            fn to_toml(&self) -> Option<String> {
                Some(format!("\"{}\"", self.word()))
            }
        }

        impl $crate::settings::options::Item for $name {
            fn expected_list() -> String {
                "a list of ".to_owned() + &[$(concat!("\"", $word, "\"")),*].join(", ")
            }
        }
    };
}

/// Declares a section: its options with their types and defaults, and before each what it means.
///
/// - `#[limits(1, 256)]`: the least and the most that a number may be.
/// - `#[example = "[]"]`: what the example shows; the default where there is one.
/// - `#[flag("workers", "N")]`: the flag of the command line, and the name of its value. One with a value in TOML, as
///   `"=false"`, has none and stands for that value; a third text says what the flag does.
/// - `#[live = true]`: it can change while the router runs.
///
/// They stand in this order behind the lines of the meaning; `#[example]` is always there.
macro_rules! options {
    ($(#[doc = $about:literal])* $name:ident $section:literal {
        $(
            $(#[doc = $doc:literal])+
            $(#[limits($least:expr, $most:expr)])?
            #[example = $example:literal]
            $(#[flag($flag:literal, $value:literal $(, $help:literal)?)])?
            $(#[live = $live:literal])?
            $key:ident: $type:ty = $default:expr,
        )*
    }) => {
        $(#[doc = $about])*
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct $name {
            $($(#[doc = $doc])+ pub(crate) $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        impl $name {
            /// Its options, in the order of the file.
            pub(crate) const OPTIONS: &[$crate::settings::options::Opt] = &[$($crate::settings::options::Opt {
                section: $section,
                key: stringify!($key),
                doc: &[$($doc),+],
                example: $example,
                flag: $crate::settings::options::last([None $(, Some(($flag, $value)))?]),
                flag_help: $crate::settings::options::last(["" $($(, $help)?)?]),
                is_live: false $(|| $live)?,
                check: |text| {
                    let limits = $crate::settings::options::last([None $(, Some(($least as f64, $most as f64)))?]);
                    $crate::settings::options::of_text::<$type>(text, limits).map(drop)
                },
            },)*];

            /// Reads the section, with the defaults for what it does not have.
            pub(crate) fn read(section: &mut $crate::settings::reader::Section<'_, '_>) -> Self {
                let usual = Self::default();
                Self { $($key: {
                    let limits = $crate::settings::options::last([None $(, Some(($least as f64, $most as f64)))?]);
                    section.value(stringify!($key), limits).unwrap_or(usual.$key)
                },)* }
            }
        }

        impl $crate::settings::options::Section for $name {
            fn options(&self) -> &'static [$crate::settings::options::Opt] {
                Self::OPTIONS
            }

            fn values(&self) -> Vec<Option<String>> {
                vec![$($crate::settings::options::Value::to_toml(&self.$key),)*]
            }

            fn set(&mut self, key: &str, text: &str) -> Result<(), String> {
                match key {
                    $(stringify!($key) => {
                        let limits = $crate::settings::options::last([None $(, Some(($least as f64, $most as f64)))?]);
                        let value = $crate::settings::options::of_text(text, limits)?;
                        $crate::settings::options::Value::take(&mut self.$key, value);
                    })*
                    _ => return Err(format!("unknown option '{key}' in [{}]", $section)),
                }
                Ok(())
            }

            fn problem(&self) -> Option<$crate::settings::options::Problem> {
                $crate::settings::options::About::problem(self)
            }

            fn summary(&self) -> Option<(&'static str, String)> {
                $crate::settings::options::About::summary(self)
            }
        }
    };
}

pub(crate) use {options, words};

/// Returns the last of some values: that which was given, else the first.
pub(crate) const fn last<T: Copy, const N: usize>(values: [T; N]) -> T {
    values[N - 1]
}
