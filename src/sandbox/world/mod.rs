//! What surrounds the API servers, each a pure core that is an ordinary client of the API.
