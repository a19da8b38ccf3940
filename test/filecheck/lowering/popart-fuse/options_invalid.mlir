// RUN: not populus-opt %s -p "popart-fuse{patterns=OpToIdentiy}" 2>&1 | filecheck %s
// RUN: not populus-opt %s -p "popart-fuse{without=Nothing}" 2>&1 | filecheck %s --check-prefix NONE

// CHECK: there is no pattern 'OpToIdentiy'; did you mean 'OpToIdentity'? (in popart-fuse)
// NONE: there is no pattern 'Nothing'; there are Activation, Attention,
func.func @main() {
  func.return
}
