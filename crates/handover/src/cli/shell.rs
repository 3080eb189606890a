//! `handover completions` and `handover man`: made from the same definitions as the commands.

use std::path::PathBuf;

use super::{print, say};
use crate::Failure;

/// What `handover completions` can be told.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  handover completions bash > /etc/bash_completion.d/handover
  handover completions fish > ~/.config/fish/completions/handover.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

/// What `handover man` can be told.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  handover man | man -l -
  handover man --dir /usr/local/share/man/man1")]
pub struct ManArgs {
    /// Write a page for each command into this directory, instead of printing the first
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Print what a shell needs to complete commands.
pub fn completions(args: &CompletionsArgs, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "handover", &mut script);
    print(&String::from_utf8_lossy(&script), "")
}

/// Print or write manual pages.
pub fn man(args: &ManArgs, command: clap::Command) -> Result<(), Failure> {
    let Some(dir) = &args.dir else {
        let mut page = Vec::new();
        let made = clap_mangen::Man::new(command).render(&mut page);
        made.map_err(|error| Failure::fault("making a page", &error))?;
        return print(&String::from_utf8_lossy(&page), "");
    };
    let writing = format!("writing pages into {}", dir.display());
    std::fs::create_dir_all(dir).map_err(|error| Failure::fault(&writing, &error))?;
    clap_mangen::generate_to(command, dir).map_err(|error| Failure::fault(&writing, &error))?;
    say(format!("wrote the pages into {}", dir.display()))
}
