//! What the parser of flags says, in our words.

use std::error::Error as _;
use std::net::AddrParseError;
use std::num::{IntErrorKind, ParseIntError};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, CommandFactory, Error};

use super::Args;

/// The column at which explanations of tables stand, and the next lines of long ones.
const COLUMN: usize = 35;
/// How much room for explanations there is to be at least: less is no column.
const ROOM: usize = 24;
/// As wide as help is at most.
const WIDEST: usize = 100;

/// An error of the parser, or the help that was asked for.
pub(super) fn plain(error: Error, line: impl Iterator<Item = std::ffi::OsString>) -> Error {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let width: Option<usize> =
                terminal_size::terminal_size().map(|(width, _)| width.0.into());
            let width = width.or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
            let command = hanging(Args::command(), width.unwrap_or(WIDEST).min(WIDEST));
            command.try_get_matches_from(line).err().unwrap_or(error)
        }
        ErrorKind::ValueValidation => wrong_value(&error).unwrap_or(error),
        _ => error,
    }
}

/// The standard library's words for wrong numbers and addresses do not say what is right.
fn wrong_value(error: &Error) -> Option<Error> {
    let source = error.source()?;
    let why = if let Some(wrong) = source.downcast_ref::<ParseIntError>() {
        match wrong.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "the number is out of range",
            _ => "give a whole number",
        }
    } else if source.is::<AddrParseError>() {
        match source.to_string().contains("socket") {
            true => super::ADDRESS,
            false => "give an IP address, such as 192.0.2.1 or 2001:db8::1",
        }
    } else {
        return None;
    };
    let said = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    let (value, flag) = (said(ContextKind::InvalidValue)?, said(ContextKind::InvalidArg)?);
    let text = format!(
        "invalid value '{value}' for '{flag}': {why}\n\nFor more information, try '--help'.\n"
    );
    Some(Error::raw(ErrorKind::ValueValidation, text))
}

/// A command whose tables below the flags have lines no longer than `width`: the parser would go on at the left.
fn hanging(mut command: Command, width: usize) -> Command {
    if let Some(text) = command.get_after_help().map(ToString::to_string) {
        command = command.after_help(folded(&text, width));
    }
    if let Some(text) = command.get_after_long_help().map(ToString::to_string) {
        command = command.after_long_help(folded(&text, width));
    }
    command.mut_subcommands(|below| hanging(below, width))
}

/// The text with lines no longer than `width`, as far as words allow. What does not fit goes on below its explanation.
fn folded(text: &str, width: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| folded_line(line, width)).collect();
    lines.join("\n")
}

fn folded_line(line: &str, width: usize) -> String {
    let margin = line.len() - line.trim_start().len();
    if line.chars().count() <= width || margin == 0 {
        return line.to_owned();
    }
    // An explanation follows several spaces.
    let explained = line[margin..].rfind("  ").map(|at| margin + at + 2);
    let column = match explained {
        Some(_) if width >= COLUMN + ROOM => COLUMN,
        None if margin + ROOM <= width => margin,
        _ => margin.min(4) + 2,
    };
    // Examples are commands: those are for copying as they are.
    let Some(from) = explained.or((margin == COLUMN).then_some(margin)) else {
        return line.to_owned();
    };
    let (mut folded, rest) = (line[..from].to_owned(), &line[from..]);
    let mut used = folded.chars().count();
    let mut begun = false;
    for word in rest.split(' ') {
        let len = word.chars().count();
        if begun || used > column {
            let space = usize::from(begun);
            if used + space + len > width && used > column {
                folded.truncate(folded.trim_end().len());
                folded.push('\n');
                folded.push_str(&" ".repeat(column));
                used = column;
            } else if begun {
                folded.push(' ');
                used += 1;
            }
        }
        folded.push_str(word);
        used += len;
        begun = true;
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn said(line: &[&str]) -> String {
        let words = || line.iter().map(std::ffi::OsString::from);
        plain(Args::try_parse_from(words()).unwrap_err(), words()).to_string()
    }

    #[test]
    fn wrong_values_say_what_is_right() {
        for (line, words) in [
            (&["get", "https://a/", "--retry", "x"][..], "give a whole number"),
            (&["get", "https://a/", "--idle-timeout", "abc"], "give a whole number"),
            (&["get", "https://a/", "--connect", "127.0.0.1"], "an IP address and a port"),
            (&["get", "https://a/", "--max-time", "-1"], "a number of seconds above 0"),
            (&["get", "https://a/", "--retry", "1001"], "1001 is not in 0..=1000"),
        ] {
            let said = said(&[&["quicket"], line].concat());
            assert!(said.contains(words) && said.contains("--help"), "{said}");
            assert!(!said.contains("syntax") && !said.contains("digit"), "{said}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_same_is_so_for_programs_of_linux() {
        for line in [
            &["gateway", "try", "unix:/a", "-l", "nope"][..],
            &["switch", "dump", "nonsense"],
            &["lab", "link", "--to", "nope"],
        ] {
            let said = said(&[&["quicket"], line].concat());
            assert!(said.contains("an IP address and a port"), "{said}");
        }
    }

    #[test]
    fn tables_go_on_below_their_explanations() {
        let line = "  key = \"FILE\"                     a word and another and one more of them";
        let folded = folded(line, 64);
        let lines: Vec<&str> = folded.lines().collect();
        assert_eq!(lines.len(), 2, "{folded}");
        assert!(lines[1].starts_with(&" ".repeat(COLUMN)) && lines[0].len() <= 64, "{folded}");
        assert_eq!(lines.join(" ").split_whitespace().count(), line.split_whitespace().count());
        let command = "  quicket get --pin sha256:... https://127.0.0.1:4433/file -o /tmp/file";
        assert_eq!(super::folded(command, 40), command);
        assert_eq!(super::folded(line, 100), line);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_gateways_file_keeps_its_columns() {
        for width in [80, 100] {
            let command = hanging(Args::command(), width);
            let gateway = command.find_subcommand("gateway").unwrap();
            let help = gateway.get_after_long_help().unwrap().to_string();
            for line in help.lines().filter(|line| line.starts_with(' ')) {
                assert!(line.chars().count() <= width, "{width}: {line:?}");
                let margin = line.len() - line.trim_start().len();
                assert!(margin == 2 || margin == COLUMN, "{width}: {line:?}");
            }
        }
    }
}
