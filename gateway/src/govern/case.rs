//! A statement as it came, for the decision about it: whose it is, what it is, and the record of a conviction.

use std::sync::Arc;

use tidegate_client::GroupName;
use tidegate_cost_model::Template;
use tidegate_proto::v1;
use tidegate_sql::TextDigest;

use super::book::RuleBook;
use super::known::fingerprint;
use super::outcomes::Outcomes;
use super::rules::Action;
use super::subject::Login;

/// A statement, its login, what decides about it, and where its outcome goes.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) book: Arc<RuleBook>,
    pub(super) outcomes: Arc<Outcomes>,
    pub(super) login: Arc<Login>,
    pub(super) template: Arc<Template>,
    /// The digest of its text, where a rule or a watch may need it.
    pub(super) digest: Option<TextDigest>,
}

/// Why it was convicted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Grounds {
    /// The list of watched statements.
    Watch,
    /// Its group's rule; this is what it broke.
    Rule(String),
}

impl Case {
    /// Has the conviction recorded; does not wait.
    pub(super) fn convict(&self, group: &GroupName, action: &Action, grounds: Grounds) {
        let (r#match, rule) = match grounds {
            Grounds::Watch => ("watch", String::new()),
            Grounds::Rule(broken) => ("identify", broken),
        };
        self.outcomes.metrics.convicted(action.name());
        self.outcomes.convict(v1::ConvictRequest {
            gateway: self.outcomes.name.clone(),
            group: group.to_string(),
            r#match: r#match.to_owned(),
            action: action.name().to_owned(),
            switch_group: action.switch_group().to_owned(),
            fingerprint: fingerprint(&self.template).unwrap_or_default(),
            template: self.template.text().to_owned(),
            text_sha256: self.digest.map(|digest| digest.to_string()).unwrap_or_default(),
            rule,
            tenant: self.login.tenant.clone(),
            user: self.login.user.clone(),
        });
    }
}
