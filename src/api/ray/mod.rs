//! KubeRay's objects, group `ray.io/v1`: typed where rules read them, the rest kept as it came.
