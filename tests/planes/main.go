// One real Kubernetes control plane in one binary, for tests: the first argument names the part that starts, or asks for a
// key that the API server takes for its service accounts.
// Knows the entry points of Kubernetes and etcd. Must not change anything about them: what is set comes as flags.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

// Process id of the parent without which this process is not to live; unset where a person starts it.
const parentVariable = "PLANE_PARENT"

// The kernel keeps the wish to end with the parent per thread: main stays on the one that never ends.
func init() { runtime.LockOSThread() }

func main() {
	if len(os.Args) < 2 {
		refuse("no part is named")
	}
	if parent := os.Getenv(parentVariable); parent != "" {
		endWith(parent)
	}
	runtime.UnlockOSThread()

	part := os.Args[1]
	// Each part reads os.Args as if it were a program of its own.
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "etcd":
		etcdmain.Main(os.Args)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "service-account-key":
		key, err := keyutil.MakeEllipticPrivateKeyPEM()
		if err != nil {
			refuse(err.Error())
		}
		os.Stdout.Write(key)
	default:
		refuse(fmt.Sprintf("there is no part %q", part))
	}
}

// From now on the kernel kills this process when its parent ends, however that ends; a stopped process too.
func endWith(parent string) {
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		refuse(fmt.Sprintf("no death signal: %v", err))
	}
	// It may have ended before the wish was there.
	if strconv.Itoa(os.Getppid()) != parent {
		refuse("the parent has ended")
	}
}

func refuse(why string) {
	fmt.Fprintf(os.Stderr, "control-plane: %s (etcd, kube-apiserver or kube-controller-manager, then its flags; service-account-key)\n", why)
	os.Exit(2)
}
