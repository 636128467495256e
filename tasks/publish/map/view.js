"use strict";
// The points on the screen: drawn by three.js, moved by its OrbitControls, found again by projecting all of them.
// Points are drawn in an order that spreads over all rows, at most as many a frame as the renderer manages in time: while
// the camera moves this is a sample of them, and once it rests the others follow, more of them each frame.
const mapView = ({ stage, canvas, overlay, axes, size, opacity, onMove }) => {
  const three = scatterplotLibrary, count = axes[0].length, deep = axes.length === 3;
  const largest = (numbers) => { let most = 0; for (let i = 0; i < numbers.length; i++) if (numbers[i] > most) most = numbers[i]; return most; };
  const STEPS = 65535, SLOW = 40, FAST = 25, LEAST = 50000, MOST = 5e6, MOST_AT_REST = 2, HIDDEN = 255, DIM = 254, PALETTE_SIZE = 64;
  if (!document.createElement("canvas").getContext("webgl2")) throw new Error("the browser gives no WebGL 2. Turn on its graphics acceleration, or open the page in another browser");
  const renderer = new three.WebGLRenderer({ canvas, antialias: false, preserveDrawingBuffer: true, powerPreference: "high-performance" });
  renderer.autoClear = renderer.sortObjects = false; renderer.outputColorSpace = three.LinearSRGBColorSpace;
  const gl = renderer.getContext(), scene = new three.Scene();
  const halves = axes.map((axis) => largest(axis) / 2);

  // A step that shares no divisor with the count visits each row once; the golden ratio spreads the first visits.
  let stride = Math.max(1, Math.round(count * 0.618034));
  for (const divisor = (a, b) => b ? divisor(b, a % b) : a; divisor(stride, count) !== 1;) stride++;
  const width = deep ? 4 : 2, positions = new Uint16Array(count * width), looks = new Uint8Array(count);
  for (let i = 0, row = 0; i < count; i++, row = (row + stride) % count) for (let k = 0; k < axes.length; k++) positions[i * width + k] = axes[k][row];

  const geometry = new three.BufferGeometry();
  geometry.setAttribute("position", new three.BufferAttribute(positions, width, true));
  geometry.setAttribute("look", new three.BufferAttribute(looks, 1, false));
  const uniforms = {
    palette: { value: Array.from({ length: PALETTE_SIZE }, () => new three.Color()) }, paper: { value: new three.Color() },
    size: { value: size }, opacity: { value: opacity }, distance: { value: 1 },
  };
  const material = new three.ShaderMaterial({
    glslVersion: three.GLSL3, uniforms, transparent: !deep, depthTest: deep, depthWrite: deep,
    defines: { ...(deep ? { DEEP: 1 } : {}), ...(size > 2.5 || deep ? { ROUND: 1 } : {}), PALETTE_SIZE },
    vertexShader: `
      in float look; uniform vec3 palette[PALETTE_SIZE]; uniform vec3 paper; uniform float size, opacity, distance; out vec4 tint;
      void main() {
        gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
        if (look > 254.5) gl_Position = vec4(2.0, 2.0, 2.0, 1.0);
        bool dim = look > 253.5;
        tint = vec4(palette[dim ? 0 : int(look + 0.5)], dim ? opacity * 0.35 : opacity);
        gl_PointSize = size;
        #ifdef DEEP
          gl_PointSize = clamp(size * distance / gl_Position.w, 1.0, 40.0);
          float away = clamp((gl_Position.w - distance) / distance * 0.55 + 0.2, 0.0, 0.75);
          tint = vec4(mix(tint.rgb, paper, dim ? max(away, 0.6) : away), 1.0);
        #endif
      }`,
    fragmentShader: `
      uniform float size; in vec4 tint; out vec4 color;
      void main() {
        color = tint;
        #ifdef ROUND
          float inner = 0.5 - length(gl_PointCoord - 0.5);
          if (inner < 0.0) discard;
          #ifndef DEEP
            color.a *= min(1.0, inner * size);
          #endif
        #endif
      }`,
  });
  const cloud = new three.Points(geometry, material);
  cloud.frustumCulled = false; cloud.scale.setScalar(2);
  cloud.position.set(...[0, 1, 2].map((k) => k < axes.length ? -halves[k] / (STEPS / 2) : 0));
  scene.add(cloud);

  const camera = deep ? new three.PerspectiveCamera(40, 1, 0.01, 50) : new three.OrthographicCamera(-1, 1, 1, -1, 0, 10);
  const controls = new three.OrbitControls(camera, canvas);
  controls.enableRotate = deep; controls.zoomToCursor = true; controls.minZoom = 0.3; controls.maxZoom = 5000; controls.minDistance = 0.02; controls.maxDistance = 20;
  if (!deep) { controls.mouseButtons.LEFT = three.MOUSE.PAN; controls.touches.ONE = three.TOUCH.PAN; controls.touches.TWO = three.TOUCH.DOLLY_PAN; }
  controls.addEventListener("change", () => changed());

  // ---- frames
  let scheduled = false, stale = true, drawn = 0, moved = 0, budget = 100000, part = 0, last = 0, paint = () => false, waiting = [];
  function schedule() { if (!scheduled) { scheduled = true; requestAnimationFrame(frame); } }
  function changed() { stale = true; schedule(); }
  function frame(now) {
    scheduled = false;
    if (stale) {
      if (last) pace(now - last);
      stale = false; drawn = 0; part = budget; moved++; last = now;
      scaleMarks(); renderer.setClearColor(uniforms.paper.value, 1); renderer.clear(); repaint(); onMove();
    } else { part = Math.min(2 * part, MOST_AT_REST * budget); last = 0; }
    if (drawn < count) {
      geometry.setDrawRange(drawn, Math.min(part, count - drawn)); renderer.render(scene, camera); drawn = Math.min(count, drawn + part);
      schedule();
    } else { last = 0; for (const done of waiting) done(); waiting = []; }
  }
  // The browser asks for frames no faster than its renderer makes them.
  function pace(taken) {
    if (taken > SLOW) budget = Math.max(LEAST, Math.round(budget * 0.7));
    else if (taken < FAST) budget = Math.min(MOST, Math.round(budget * 1.4));
  }
  // Zoomed in there is more room for each point.
  function scaleMarks() {
    const closer = deep ? 1 : Math.max(1, camera.zoom) ** 0.35;
    uniforms.size.value = Math.min(size * closer, Math.max(size, 9)) * renderer.getPixelRatio();
    uniforms.opacity.value = Math.min(0.9, opacity * closer);
    uniforms.distance.value = deep ? camera.position.distanceTo(controls.target) : 1;
  }
  let painted = true;
  // A canvas that lies over the other costs a software renderer a third of each frame, also an empty one.
  function repaint() {
    const pen = overlay.getContext("2d"), scale = renderer.getPixelRatio();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    if (painted) pen.clearRect(0, 0, stage.clientWidth, stage.clientHeight);
    painted = paint(pen); overlay.hidden = !painted;
  }
  function resize() {
    const wide = Math.max(stage.clientWidth, 1), high = Math.max(stage.clientHeight, 1), scale = Math.min(window.devicePixelRatio || 1, 2);
    renderer.setPixelRatio(scale); renderer.setSize(wide, high, false); overlay.width = wide * scale; overlay.height = high * scale;
    const aspect = wide / high;
    if (deep) camera.aspect = aspect;
    else { camera.left = -Math.max(aspect, 1); camera.right = -camera.left; camera.top = Math.max(1, 1 / aspect); camera.bottom = -camera.top; }
    camera.updateProjectionMatrix(); changed();
  }

  // ---- from points to the screen and back
  function projection() {
    camera.updateMatrixWorld(); cloud.updateMatrixWorld();
    const whole = new three.Matrix4().multiplyMatrices(camera.projectionMatrix, camera.matrixWorldInverse).multiply(cloud.matrixWorld);
    return { m: whole.elements.map((one, k) => k < 12 ? one / STEPS : one), wide: stage.clientWidth, high: stage.clientHeight };
  }
  function project(row, { m, wide, high } = projection()) {
    const x = axes[0][row], y = axes[1][row], z = deep ? axes[2][row] : 0, w = m[3] * x + m[7] * y + m[11] * z + m[15];
    return [((m[0] * x + m[4] * y + m[8] * z + m[12]) / w + 1) * wide / 2, (1 - (m[1] * x + m[5] * y + m[9] * z + m[13]) / w) * high / 2, w];
  }
  // Calls `each(row, x, y, depth)` for what is drawn and on the screen; written out, as it runs over all points.
  function eachVisible(visible, each) {
    const { m, wide, high } = projection(), [xs, ys, zs] = axes;
    for (let row = 0; row < count; row++) {
      if (!visible[row]) continue;
      const x = xs[row], y = ys[row], z = deep ? zs[row] : 0, w = m[3] * x + m[7] * y + m[11] * z + m[15];
      if (w <= 0) continue;
      const across = ((m[0] * x + m[4] * y + m[8] * z + m[12]) / w + 1) * wide / 2, down = (1 - (m[1] * x + m[5] * y + m[9] * z + m[13]) / w) * high / 2;
      if (across >= 0 && down >= 0 && across < wide && down < high) each(row, across, down, w);
    }
  }
  // Of points as good as under the pointer the foremost, else the nearest within `radius` pixels; -1: none.
  function nearest(px, py, radius, visible) {
    let best = -1, least = radius * radius;
    eachVisible(visible, (row, x, y, depth) => {
      const apart = (x - px) * (x - px) + (y - py) * (y - py);
      const cost = deep && apart <= 9 ? depth - 1000 : apart;
      if (cost <= least) { least = cost; best = row; }
    });
    return best;
  }
  // The polygon is filled on a canvas: to look a point up there takes as long for many corners as for few.
  function inside(polygon, visible) {
    const wide = stage.clientWidth, high = stage.clientHeight, rows = new Uint32Array(count);
    const pen = Object.assign(document.createElement("canvas"), { width: wide, height: high }).getContext("2d", { willReadFrequently: true });
    polygon.forEach(([x, y], k) => k ? pen.lineTo(x, y) : pen.moveTo(x, y)); pen.fill("evenodd");
    const filled = pen.getImageData(0, 0, wide, high).data;
    let found = 0;
    eachVisible(visible, (row, x, y) => { if (filled[(Math.floor(y) * wide + Math.floor(x)) * 4 + 3] > 127) rows[found++] = row; });
    return rows.slice(0, found);
  }

  // ---- the camera
  function showAll() {
    controls.target.set(0, 0, 0); camera.position.set(0, 0, 5); camera.up.set(0, 1, 0);
    if (deep) camera.position.set(1.1, 0.9, 2).setLength(3.4 * Math.max(1, 1 / camera.aspect));
    else { camera.zoom = 0.95; camera.updateProjectionMatrix(); }
    controls.update(); changed();
  }
  function go(row) {
    const place = new three.Vector3(...[0, 1, 2].map((k) => k < axes.length ? (axes[k][row] - halves[k]) / (STEPS / 2) : 0));
    const away = camera.position.clone().sub(controls.target);
    if (deep) away.setLength(Math.min(away.length(), 1.2)); else { camera.zoom = Math.max(camera.zoom, 4); camera.updateProjectionMatrix(); }
    controls.target.copy(place); camera.position.copy(place).add(away); controls.update(); changed();
  }
  // dx and dy in fifths of the screen, closer as a factor.
  function move(dx, dy, closer = 1) {
    const away = camera.position.clone().sub(controls.target), step = deep ? away.length() * 0.15 : 0.4 / camera.zoom;
    const shift = new three.Vector3(dx * step, dy * step, 0).applyQuaternion(camera.quaternion);
    controls.target.add(shift);
    if (deep) away.multiplyScalar(1 / closer).clampLength(controls.minDistance, controls.maxDistance);
    else { camera.zoom = Math.min(Math.max(camera.zoom * closer, controls.minZoom), controls.maxZoom); camera.updateProjectionMatrix(); }
    camera.position.copy(controls.target).add(away); controls.update(); changed();
  }
  function turn(dx, dy) {
    if (!deep) return;
    const away = camera.position.clone().sub(controls.target), across = new three.Vector3(1, 0, 0).applyQuaternion(camera.quaternion);
    away.applyAxisAngle(camera.up, dx * 0.15).applyAxisAngle(across, dy * 0.15);
    camera.position.copy(controls.target).add(away); controls.update(); changed();
  }

  canvas.addEventListener("webglcontextrestored", changed);
  new ResizeObserver(resize).observe(stage); resize(); showAll();
  return {
    three, controls, deep, project, projection, nearest, inside, showAll, go, move, turn, repaint,
    HIDDEN, DIM,
    setPaint: (painter) => { paint = painter; },
    setLooks(byRow) {
      for (let i = 0, row = 0; i < count; i++, row = (row + stride) % count) looks[i] = byRow[row];
      geometry.getAttribute("look").needsUpdate = true; changed();
    },
    // Colours as they are on the screen: shaders and canvas get the same numbers.
    setColors(colors, paper) {
      colors.forEach((color, k) => uniforms.palette.value[k].setStyle(color, three.LinearSRGBColorSpace));
      uniforms.paper.value.setStyle(paper, three.LinearSRGBColorSpace); changed();
    },
    whole: () => new Promise((done) => { waiting.push(done); schedule(); }),
    frame: () => ({ drawn, moved, budget, zoom: camera.zoom, target: controls.target.toArray(), position: camera.position.toArray() }),
    scene, camera, geometry, renderer,
  };
};
