//! Flags of the command line that stand for options: made from the options themselves.

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};

use super::Settings;
use super::options::Opt;

/// What the command line says of options, in the order of the file. `OF_NODE`: only what a node of a cluster takes, whose file says
/// the rest.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flags<const OF_NODE: bool = false>(pub(super) Vec<(&'static Opt, String)>);

/// The flags of a node of a cluster.
const OF_A_NODE: [&str; 4] = ["ignore", "log-level", "socket", "stats"];

impl<const OF_NODE: bool> Flags<OF_NODE> {
    /// Returns the options that have flags, with these and the names of their values.
    fn options() -> impl Iterator<Item = (&'static Opt, &'static str, &'static str)> {
        let all = Settings::options().filter_map(|option| {
            let (flag, value) = option.flag?;
            Some((option, flag, value))
        });
        all.filter(|(_, flag, _)| !OF_NODE || OF_A_NODE.contains(flag))
    }

    /// Returns those of a router, which has more.
    pub(crate) fn of_router(&self) -> Flags {
        Flags(self.0.clone())
    }

    /// Returns the flags that were given, with their options.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, &'static Opt)> {
        self.0.iter().filter_map(|(option, _)| Some((option.flag?.0, *option)))
    }
}

impl<const OF_NODE: bool> Args for Flags<OF_NODE> {
    fn augment_args(command: Command) -> Command {
        Self::options().fold(command, |command, (option, flag, value)| {
            let doc: Vec<&str> = option.doc.iter().map(|line| line.trim()).collect();
            let help = if option.flag_help.is_empty() { doc.join(" ") } else { option.flag_help.to_owned() };
            let argument = Arg::new(flag).long(flag).help(help.trim_end_matches('.').to_owned());
            command.arg(match value.strip_prefix('=') {
                Some(_) => argument.action(ArgAction::SetTrue),
                None => argument
                    .value_name(value)
                    .allow_negative_numbers(true)
                    .value_parser(|text: &str| (option.check)(text).map(|()| text.to_owned())),
            })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const OF_NODE: bool> FromArgMatches for Flags<OF_NODE> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = Self::options().filter_map(|(option, flag, value)| {
            let text = match value.strip_prefix('=') {
                Some(text) => matches.get_flag(flag).then(|| text.to_owned()),
                None => matches.get_one::<String>(flag).cloned(),
            };
            Some((option, text?))
        });
        Ok(Self(given.collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}
