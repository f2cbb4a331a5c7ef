//! =c
//! Error([TEXT])
//!
//! =s control
//! keeps the router from starting
//!
//! =d
//! For a compound element's overload that fits what should not be. The text is the error.
//!
//! =a Message

use graph::{Class, ConfigError, Element, Setup};

pub(crate) static CLASS: Class =
    Class { name: "Error", ports: "-/-", manual: graph::manual!("error.rs"), make, ..Class::DEFAULT };

fn make(setup: &mut Setup<'_>) -> Result<Box<dyn Element>, ConfigError> {
    let text: Option<String> = setup.arguments.optional("MESSAGE")?;
    setup.arguments.finish()?;
    Err(text.unwrap_or_else(|| "the configuration says that this is wrong".to_owned()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::testing::configure;

    #[test]
    fn it_says_what_is_wrong() {
        assert_eq!(configure(&CLASS, "\"two inputs, please\"").unwrap_err(), ["two inputs, please"]);
        assert_eq!(configure(&CLASS, "").unwrap_err().len(), 1);
    }
}
