{ lib, rustPlatform, installShellFiles }:

rustPlatform.buildRustPackage {
  pname = "iottymux";
  version = (lib.importTOML ../../Cargo.toml).package.version;
  src = lib.cleanSource ../..;
  cargoLock.lockFile = ../../Cargo.lock;
  # They need a real systemd.
  doCheck = false;
  nativeBuildInputs = [ installShellFiles ];
  postInstall = ''
    installManPage packaging/man/*
    installShellCompletion --name iottymux.bash packaging/completions/iottymux.bash
    installShellCompletion --name _iottymux packaging/completions/_iottymux
    installShellCompletion --name iottymux.fish packaging/completions/iottymux.fish
  '';
  meta = {
    license = lib.licenses.asl20;
    mainProgram = "iottymux";
    platforms = lib.platforms.linux;
  };
}
