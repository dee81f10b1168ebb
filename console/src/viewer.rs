//! Who looks at a page, and what they may do there.

/// How a viewer proved who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Not at all: the controller asks nobody.
    Off,
    /// By a token or a JWT at the console's own login.
    Login,
    /// By what each request brings, such as a certificate of the browser.
    Request,
}

/// A viewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Viewer {
    /// Name and role, as people call them.
    pub label: String,
    /// How it is proven.
    pub proof: Proof,
    /// May change groups, bindings and watches. What a viewer may not do is not shown.
    pub may_change: bool,
    /// May see what is about the whole controller: status, nodes, prices, the audit log, watches and runaways.
    pub may_see_all: bool,
    /// What every form sends along, so that no other site can send one in the viewer's name.
    pub form_key: String,
}
