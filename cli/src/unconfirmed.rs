//! What a node or a gateway says at its end of consumption that the controller did not confirm.

use crate::error::CliError;

/// An error that names each of `reports`; none where there is a journal, which keeps them for the next start.
pub(crate) fn check(reports: &[String], has_journal: bool) -> Result<(), CliError> {
    if reports.is_empty() || has_journal {
        return Ok(());
    }
    let what = "the controller did not confirm".to_owned();
    Err(CliError::Process { what, reason: format!("{}; it may not be accounted for", reports.join(", ")) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_confirmed_is_an_error_unless_a_journal_keeps_it() {
        let reports = ["5 RU in group shop", "1 RU in group till"].map(str::to_owned);
        let error = check(&reports, false).unwrap_err().to_string();
        assert!(
            error.contains("did not confirm") && error.contains("5 RU in group shop, 1 RU in"),
            "{error}"
        );
        assert!(check(&reports, true).is_ok() && check(&[], false).is_ok() && check(&[], true).is_ok());
    }
}
