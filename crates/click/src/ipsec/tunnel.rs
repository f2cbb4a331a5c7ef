//! Routes with associations as text. Messages never repeat what stands behind an output: it may be a key.

use std::net::Ipv4Addr;

use graph::FromArgument;
use graph::lang::{split_words, unquote_bytes};
use zeroize::Zeroizing;

use super::association::{KEY_BYTES, Key, Settings};
use crate::lookup::{Command, REMOVAL_FORM, Route};

/// How a route is written.
pub(super) const FORM: &str = "ADDR/MASK [GATEWAY] OUTPUT [SPI ENCRYPT_KEY AUTH_KEY REPLAY OOSIZE]";

/// The output of packets that are to be protected.
pub(super) const TUNNEL: u16 = 1;

/// What the routes of a configuration, or of a write handler, say of associations.
#[derive(Default)]
pub(super) struct Tunnels {
    pub(super) settings: Vec<Settings>,
    /// The keys, as they are written.
    pub(super) secrets: Vec<String>,
}

impl Tunnels {
    /// Reads a route, and keeps its association.
    pub(super) fn route(&mut self, text: &str, outputs: usize) -> Result<Route<u32>, String> {
        let words = split_words(text);
        let (route, tunnel) = split(&words);
        if !tunnel.is_empty() && u16::from_argument(&route[route.len() - 1]).is_none() {
            return Err(
                "no number stands at the place of the output; expected an output before the SPI".into()
            );
        }
        let settings = self.settings(tunnel)?;
        let mut route = Route::<u32>::parse(&route.join(" "), outputs)?;
        if let Some(via) = &mut route.via {
            via.spi = settings.as_ref().map_or(0, |settings| settings.spi);
            if via.output == TUNNEL && via.spi == 0 {
                return Err(format!("output {TUNNEL} is for tunnels; expected their five words behind it"));
            }
        }
        self.settings.extend(settings);
        Ok(route)
    }

    /// Reads what a handler, `add`, `set` or `remove`, is to do.
    pub(super) fn command(&mut self, name: &str, text: &str, outputs: usize) -> Result<Command<u32>, String> {
        let (read, form) = match name {
            "add" => (self.route(text, outputs).map(Command::Add), FORM),
            "set" => (self.route(text, outputs).map(Command::Set), FORM),
            _ => {
                let words = split_words(text);
                let route = split(&words).0.join(" ");
                (Route::parse_removal(&route, outputs).map(Command::Remove), REMOVAL_FORM)
            }
        };
        read.map_err(|error| format!("expected '{form}': {error}"))
    }

    fn settings(&mut self, words: &[String]) -> Result<Option<Settings>, String> {
        let [spi, encryption, authentication, first, window] = words else {
            let count = words.len();
            return if count == 0 {
                Ok(None)
            } else {
                Err(format!(
                    "{count} words stand behind the output; expected SPI ENCRYPT_KEY AUTH_KEY REPLAY OOSIZE"
                ))
            };
        };
        let not_0 = |number: &u32| *number != 0;
        let spi =
            u32::from_argument(spi).filter(not_0).ok_or("SPI: expected a number from 1 to 4294967295")?;
        let first = u32::from_argument(first)
            .filter(not_0)
            .ok_or("REPLAY: expected a number from 1 to 4294967295")?;
        let window = u8::from_argument(window).ok_or("OOSIZE: expected a number from 0 to 255")?;
        self.secrets.extend([encryption.clone(), authentication.clone()]);
        let encryption = key("ENCRYPT_KEY", encryption)?;
        let authentication = key("AUTH_KEY", authentication)?;
        Ok(Some(Settings { spi, encryption, authentication, first, window }))
    }
}

/// The words of the route, and those behind its output.
fn split(words: &[String]) -> (&[String], &[String]) {
    let has_gateway = words.get(1).is_some_and(|word| word == "-" || Ipv4Addr::from_argument(word).is_some());
    words.split_at(words.len().min(2 + usize::from(has_gateway)))
}

fn key(name: &str, word: &str) -> Result<Key, String> {
    let bytes = Zeroizing::new(unquote_bytes(word));
    let mut key = Key::default();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    match bytes.len() {
        KEY_BYTES => key.copy_from_slice(&bytes),
        length if length == 2 * KEY_BYTES && bytes.iter().all(u8::is_ascii_hexdigit) => {
            for (byte, digits) in key.iter_mut().zip(bytes.chunks_exact(2)) {
                *byte = digit(digits[0]).unwrap_or(0) << 4 | digit(digits[1]).unwrap_or(0);
            }
        }
        length => {
            return Err(format!(
                "{name} has {length} bytes; expected {KEY_BYTES}, or {} hexadecimal digits",
                2 * KEY_BYTES
            ));
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f";

    fn read(text: &str) -> Result<(String, Vec<Settings>), String> {
        let mut tunnels = Tunnels::default();
        tunnels.route(text, 5).map(|route| (route.to_string(), tunnels.settings))
    }

    #[test]
    fn keys_are_bytes_or_digits() {
        let expected: Vec<u8> = (0..16).collect();
        for key in [HEX, "\\<00010203 04050607 08090A0B 0C0D0E0F>", &format!("\"{HEX}\"")] {
            let (route, settings) =
                read(&format!("10/8 192.0.2.1 1 234 {key} abcdefghijklmnop 300 64")).unwrap();
            assert_eq!(route, "10.0.0.0/8 192.0.2.1 1 SPI 234");
            assert_eq!(settings[0].encryption[..], expected[..], "{key}");
            assert_eq!(&settings[0].authentication[..], b"abcdefghijklmnop");
            assert_eq!((settings[0].spi, settings[0].first, settings[0].window), (234, 300, 64));
        }
        assert_eq!(read("10/8 4").unwrap().0, "10.0.0.0/8 - 4");
        assert_eq!(read(&format!("10/8 1 0xff {HEX} {HEX} 1 0")).unwrap().0, "10.0.0.0/8 - 1 SPI 255");
    }

    #[test]
    fn mistakes_say_what_is_right_and_never_a_key() {
        for (text, expected) in [
            ("10/8 1", "output 1 is for tunnels; expected their five words behind it"),
            (
                "10/8 1 234 KEY KEY 300",
                "4 words stand behind the output; expected SPI ENCRYPT_KEY AUTH_KEY REPLAY OOSIZE",
            ),
            (
                "10/8 KEY KEY 300 64",
                "no number stands at the place of the output; expected an output before the SPI",
            ),
            ("10/8 - 1 0 KEY KEY 300 64", "SPI: expected a number from 1 to 4294967295"),
            ("10/8 - 1 KEY KEY 9 300 64", "SPI: expected a number from 1 to 4294967295"),
            ("10/8 1 234 KEY KEY 0 64", "REPLAY: expected a number from 1 to 4294967295"),
            ("10/8 1 234 KEY KEY 300 256", "OOSIZE: expected a number from 0 to 255"),
            ("10/8 1 234 KEYS KEY 300 64", "ENCRYPT_KEY has 33 bytes; expected 16, or 32 hexadecimal digits"),
            ("10/8 1 234 KEY short 300 64", "AUTH_KEY has 5 bytes; expected 16, or 32 hexadecimal digits"),
        ] {
            let text = text.replace("KEYS", &format!("{HEX}g")).replace("KEY", HEX);
            assert_eq!(read(&text).err().as_deref(), Some(expected), "{text}");
        }
        let mut tunnels = Tunnels::default();
        let error = tunnels.command("add", &format!("10/8 9 234 {HEX} {HEX} 300 64"), 5).unwrap_err();
        assert_eq!(error, format!("expected '{FORM}': there is no output 9; the element has 0 to 4"));
    }
}
