//! Real Ray processes behind the pods.
