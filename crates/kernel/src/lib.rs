//! Pure decisions about tasks and handoffs.
