//! A Kubernetes API server as a pure, synchronous store with watch.
