//! The Secret with the token of a Ray cluster (specs/raycluster.md 4.7).
//! Must not know what containers do with it.

use super::Draft;
use crate::api::Kind;
use crate::api::ray::RayCluster;
use crate::plan::build;
use crate::plan::pass::{Beside, Flow};

/// What it needs: kind and name.
pub(super) fn wanted(cluster: &RayCluster) -> Vec<(Kind, String)> {
    if build::has_secret(cluster) { vec![(Kind::Secret, build::secret_name(cluster))] } else { Vec::new() }
}

/// Makes the Secret where the cluster is to have one of its own; never changes it, and says nothing, as KubeRay.
pub(super) fn secret(draft: &mut Draft<'_>) -> Flow {
    if !build::has_secret(&draft.cluster) {
        return Flow::Next;
    }
    if let Beside::Missing = draft.pass.beside(Kind::Secret, &build::secret_name(&draft.cluster)) {
        let Some(key) = &draft.flags.token_key else {
            draft.pass.waits_for("its token cannot be made: this controller has no key for tokens");
            return Flow::Stop;
        };
        let body = build::secret(&draft.cluster, key);
        draft.pass.create(Kind::Secret, body);
    }
    Flow::Next
}
