//! RayFleet's own objects, group `rayfleet.io/v1alpha1`.
