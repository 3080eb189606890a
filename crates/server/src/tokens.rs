//! The file of static tokens: read at the start, and again while the server runs.
//!
//! It is read again every so often and when somebody asks for it. A file that cannot be read, or does not parse, changes
//! nothing. A change is taken once two readings in a row agree: who writes the file anew may be halfway through, and
//! half a file that parses would revoke the tokens of the other half.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use handover_desk::gate::Gate;
use handover_desk::identity::tokens::Tokens;
use handover_desk::private;
use handover_desk::shutdown::Shutdown;
use tokio::sync::Notify;

/// How long a file must stay the same before a change of it is taken.
const SETTLES: Duration = Duration::from_millis(100);

/// The file, and the tokens that it lists.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// What it lists.
    pub tokens: Arc<Tokens>,
    /// Asks for the file to be read before its time.
    wanted: Notify,
}

impl TokenFile {
    /// Read the file, or say what is wrong with it. Says in the log if others than its owner can read it.
    pub fn open(path: &Path) -> Result<(Arc<TokenFile>, String), String> {
        let expected =
            |found: String| format!("expected a file of tokens at {}, found: {found}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| expected(error.to_string()))?;
        let tokens = Tokens::parse(&text).map_err(|malformed| expected(malformed.to_string()))?;
        private::warn_unless(path);
        let file = TokenFile { path: path.to_owned(), tokens: Arc::new(tokens), wanted: Notify::new() };
        Ok((Arc::new(file), text))
    }

    /// Read the file again soon.
    pub fn want_reload(&self) {
        self.wanted.notify_one();
    }

    async fn read(&self) -> Result<String, String> {
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(path)).await;
        read.map_err(|_| "the server is stopping".to_owned())?.map_err(|error| error.to_string())
    }

    /// What the file says once it stays the same for a moment; `before` is what was taken last.
    async fn settled(&self, before: &str) -> Result<String, String> {
        let mut text = self.read().await?;
        while text != before {
            tokio::time::sleep(SETTLES).await;
            let again = self.read().await?;
            if again == text {
                break;
            }
            text = again;
        }
        Ok(text)
    }
}

/// Let count what the file says, until the shutdown begins. `text` is what it said when it was opened.
pub async fn keep_fresh(
    file: Arc<TokenFile>,
    mut text: String,
    every: Duration,
    gate: Gate,
    mut shutdown: Shutdown,
) {
    let mut last = Ok(());
    loop {
        tokio::select! {
            biased;
            () = shutdown.begun() => return,
            () = tokio::time::sleep(every) => {}
            () = file.wanted.notified() => {}
        }
        let found = tokio::select! {
            biased;
            () = shutdown.begun() => return,
            found = file.settled(&text) => found,
        };
        let taken = match found {
            Ok(now) if now == text => Ok(()),
            Ok(now) => gate
                .replace_tokens(&file.tokens, &now)
                .map_err(|malformed| malformed.to_string())
                .map(|changes| {
                    text = now;
                    tracing::info!(
                        changes,
                        tokens = file.tokens.len(),
                        "read the file of identity.tokens again"
                    );
                }),
            Err(error) => Err(error),
        };
        // The file may be wrong for long: say so once for each way.
        if let Err(error) = &taken
            && taken != last
        {
            let path = file.path.display();
            tracing::error!(%path, %error, "the file of identity.tokens could not be read again: the old tokens stay");
        }
        last = taken;
    }
}
