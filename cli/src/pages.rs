//! Completion scripts and manual pages, made from the declarations of the flags.

use std::fs;
use std::path::Path;

use clap::{ArgAction, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Args;
use crate::exit::{Failure, Kind};
use crate::out;

/// A longer line before examples or a table is a sentence, and no heading of a section; in bytes.
const MAX_HEADING: usize = 32;
/// Begins the section of exit codes.
const CODES_HEADING: &str = ".SH \"EXIT CODES\"\n";

/// Prints a completion script.
pub(crate) fn completion(shell: Shell) -> Result<(), Failure> {
    // To memory first: the generator panics where its output cannot be written, such as a pipe
    // that was closed.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "quicket", &mut script);
    out::write(&script)
}

/// Prints the manual page, or writes those of all commands to a directory.
pub(crate) fn manual(dir: Option<&Path>) -> Result<(), Failure> {
    let command = all();
    let Some(dir) = dir else { return out::write(&page(command)?) };
    if fs::metadata(dir).is_ok_and(|there| !there.is_dir()) {
        let why = format!("{} is no folder: name one for the pages", dir.display());
        return Err(Failure::new(Kind::Environment, why));
    }
    let failed = |error| Failure::environment(format!("cannot write to {}", dir.display()), error);
    fs::create_dir_all(dir).map_err(failed)?;
    let mut rest = vec![command];
    while let Some(command) = rest.pop() {
        rest.extend(command.get_subcommands().cloned());
        let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
        fs::write(dir.join(format!("{name}.1")), page(command)?).map_err(failed)?;
    }
    Ok(())
}

/// All commands, but those that show the help of others: they have no pages.
fn all() -> clap::Command {
    fn without_help(command: clap::Command) -> clap::Command {
        command.disable_help_subcommand(true).mut_subcommands(without_help)
    }
    let mut command = without_help(Args::command());
    command.build();
    command
}

fn page(command: clap::Command) -> Result<Vec<u8>, Failure> {
    let below = command.get_after_long_help().or_else(|| command.get_after_help());
    let mut below = below.map(|text| sections(&text.to_string())).unwrap_or_default();
    if !below.contains(CODES_HEADING) {
        below.push_str(&format!(
            "{CODES_HEADING}.PP\n0 if everything went well, 2 if the command line makes no sense; quicket(1) lists all.\n"
        ));
    }
    let has_flags = command.get_arguments().any(|argument| !argument.is_hide_set());
    let has_commands = command.has_subcommands();
    let synopsis = synopsis(&command);
    let source = format!("quicket {}", command.get_version().unwrap_or_default());
    let man = Man::new(command).source(source);
    let mut page = Vec::new();
    let mut render = || {
        man.render_title(&mut page)?;
        man.render_name_section(&mut page)?;
        page.extend_from_slice(synopsis.as_bytes());
        man.render_description_section(&mut page)?;
        if has_flags {
            man.render_options_section(&mut page)?;
        }
        if has_commands {
            man.render_subcommands_section(&mut page)?;
        }
        page.extend_from_slice(below.as_bytes());
        man.render_version_section(&mut page)
    };
    render().map_err(|error| Failure::environment("cannot make the manual page", error))?;
    Ok(page)
}

/// How the command is written, with the values of its flags.
fn synopsis(command: &clap::Command) -> String {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut line = format!(".SH SYNOPSIS\n\\fB{}\\fR", escaped(name));
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flags = shown().filter(|argument| !argument.is_positional());
    for argument in
        flags.chain(command.get_positionals().filter(|argument| !argument.is_hide_set()))
    {
        let text = argument.to_string();
        let is_counted = matches!(argument.get_action(), ArgAction::Count);
        let more = if is_counted && !text.ends_with("...") { "..." } else { "" };
        let short = argument.get_short().filter(|_| argument.get_long().is_some());
        let short = short.map(|short| format!("-{short}|")).unwrap_or_default();
        let shown = escaped(&format!("{short}{text}{more}"));
        let is_marked = text.starts_with(['[', '<']);
        match argument.is_required_set() || is_marked {
            true => line.push_str(&format!(" {shown}")),
            false => line.push_str(&format!(" [{shown}]")),
        }
    }
    if command.has_subcommands() {
        let is_required = command.is_subcommand_required_set();
        line.push_str(if is_required { " <COMMAND>" } else { " [COMMAND]" });
    }
    line + "\n"
}

/// What follows the flags in the help of a command, as sections of a manual page. Examples and tables stay as they are,
/// line by line: filled, they would be neither.
fn sections(text: &str) -> String {
    let mut page = String::new();
    let (mut is_begun, mut is_open) = (false, false);
    for line in text.lines() {
        let is_as_it_is = line.starts_with(' ') || line.is_empty() && is_open;
        if is_open && !is_as_it_is {
            page.push_str(".fi\n");
            is_open = false;
        }
        match line.strip_suffix(':') {
            Some(heading) if !is_as_it_is && heading.len() <= MAX_HEADING => {
                page.push_str(&format!(".SH \"{}\"\n", escaped(&heading.to_uppercase())));
                is_begun = true;
                continue;
            }
            _ if line.is_empty() && !is_open => continue,
            _ => {}
        }
        if !std::mem::replace(&mut is_begun, true) {
            page.push_str(".SH NOTES\n");
        }
        if is_as_it_is && !std::mem::replace(&mut is_open, true) {
            page.push_str(".nf\n");
        } else if !is_as_it_is {
            page.push_str(".PP\n");
        }
        page.push_str(&escaped(line));
        page.push('\n');
    }
    if is_open {
        page.push_str(".fi\n");
    }
    page
}

/// Text that roff shows as it is, and of which can be copied what is shown.
fn escaped(line: &str) -> String {
    let mut escaped = String::with_capacity(line.len());
    if line.starts_with(['.', '\'']) {
        escaped.push_str("\\&");
    }
    for character in line.chars() {
        match character {
            '\\' => escaped.push_str("\\e"),
            '-' => escaped.push_str("\\-"),
            '\'' => escaped.push_str("\\(aq"),
            '`' => escaped.push_str("\\(ga"),
            '^' => escaped.push_str("\\(ha"),
            '~' => escaped.push_str("\\(ti"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_and_tables_stay_line_by_line() {
        let text = "The file:\n  a = \"b\"      what\n  c\n\n  d-e 'f' \\\nand more words than a heading has here:\n  .g\n\n\
                    Examples:\n  h";
        assert_eq!(
            sections(text),
            ".SH \"THE FILE\"\n.nf\n  a = \"b\"      what\n  c\n\n  d\\-e \\(aqf\\(aq \\e\n.fi\n\
             .PP\nand more words than a heading has here:\n.nf\n  .g\n\n.fi\n.SH \"EXAMPLES\"\n.nf\n  h\n.fi\n"
        );
        assert_eq!(sections("Words."), ".SH NOTES\n.PP\nWords.\n");
        assert_eq!(escaped("'x"), "\\&\\(aqx");
    }

    #[test]
    fn no_page_has_a_section_without_a_name() {
        let mut rest = vec![all()];
        while let Some(command) = rest.pop() {
            rest.extend(command.get_subcommands().cloned());
            let name = command.get_name().to_owned();
            let page = String::from_utf8(page(command).unwrap()).unwrap();
            assert!(!page.contains(".SH EXTRA"), "{name}");
            assert!(!page.contains("\\-help(1)"), "{name}: leads to a page that is not made");
            assert!(
                page.lines().any(|line| line.starts_with(".TH") && line.contains("\"quicket ")),
                "{name}: {page}"
            );
            assert_eq!(page.matches(CODES_HEADING).count(), 1, "{name}");
            assert_eq!(page.matches("\n.nf\n").count(), page.matches("\n.fi\n").count(), "{name}");
        }
    }
}
